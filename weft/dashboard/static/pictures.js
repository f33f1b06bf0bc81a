"use strict";
/* What some runs have besides: the lineage of a population, the pay-offs of self-play. */

function lineagePicture(lineage, best) {
  const rounds = (lineage.rounds || []).filter((r) => Array.isArray(r.members));
  if (rounds.length < 2) return null;
  const count = Math.max(...rounds.flatMap((r) => r.members.map((m) => m.member))) + 1;
  if (!(count > 0) || count > 512) return null;
  const lane = count > 40 ? 10 : 18, W = 860, L = 60, R = 14, T = 20, lanes = T + count * lane;
  const last = rounds.at(-1).env_steps || 1, x = (s) => L + (s / last) * (W - L - R), y = (m) => T + (m + 0.5) * lane;
  const fields = (lineage.fields || []).filter((f) => rounds.every((r) => r.members.every((m) => typeof m.values?.[f] === "number")));
  const H = lanes + 30 + fields.length * 150;
  const svg = shape("svg", { class: "lineage", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Which member copied which, and when" });
  const returns = rounds.flatMap((r) => r.members.map((m) => m.return_mean)).filter((v) => typeof v === "number");
  const low = Math.min(...returns), high = Math.max(...returns);
  const words = (px, py, text, anchor = "end") => { const t = shape("text", { x: px, y: py, "text-anchor": anchor }); t.textContent = text; svg.append(t); };
  for (let k = 0; k < count; k += lane < 14 ? 5 : 1) words(L - 8, y(k) + 4, String(k));
  for (let k = 1; k < rounds.length; k++) for (const one of rounds[k].members) {
    const share = typeof one.return_mean === "number" && high > low ? (one.return_mean - low) / (high - low) : null;
    const bar = shape("rect", { x: x(rounds[k - 1].env_steps), y: y(one.member) - lane / 2 + 1.5, width: Math.max(1, x(rounds[k].env_steps) - x(rounds[k - 1].env_steps) - 1), height: lane - 3, rx: 2 });
    bar.style.fill = share === null ? "var(--rail)" : `color-mix(in srgb, var(--accent) ${Math.round(12 + 80 * share)}%, var(--card))`;
    const tip = shape("title", {}); tip.textContent = `member ${one.member}, return ${figure(one.return_mean)}`; bar.append(tip);
    svg.append(bar);
  }
  for (const round of rounds) for (const one of round.members) if (Number.isInteger(one.copied)) {
    const at = x(round.env_steps), a = y(one.copied), b = y(one.member), bend = Math.min(22, 4 + Math.abs(b - a) / 6);
    svg.append(shape("path", { class: "copy", d: `M${at},${a} C${at + bend},${a} ${at + bend},${b} ${at},${b}` }), shape("circle", { cx: at, cy: b, r: 2.4, fill: "var(--faint)" }));
  }
  const line = ancestors(rounds, best);
  if (line) svg.append(shape("polyline", { class: "line", points: line.slice(0, -1).flatMap((m, k) => [`${x(rounds[k].env_steps)},${y(m)}`, `${x(rounds[k + 1].env_steps)},${y(m)}`]).join(" ") }));
  for (let k = 0; k <= 4; k++) words(x((last * k) / 4), lanes + 16, k === 4 ? `${short(last)} env steps of each` : short((last * k) / 4), k === 4 ? "end" : "middle");
  fields.forEach((field, n) => fieldPanel(svg, rounds, field, line, x, lanes + 56 + n * 150, W - R, L, words));
  return svg;
}

function ancestors(rounds, best) {
  if (!Number.isInteger(best)) return null;
  const line = [best];
  for (let k = rounds.length - 1; k >= 1; k--) {
    const copied = rounds[k].members.find((m) => m.member === line.at(-1))?.copied;
    line.push(Number.isInteger(copied) ? copied : line.at(-1));
  }
  return line.reverse();
}

function fieldPanel(svg, rounds, field, line, x, top, right, left, words) {
  const height = 104, all = rounds.flatMap((r) => r.members.map((m) => m.values[field]));
  const low = Math.min(...all), high = Math.max(...all), log = low > 0 && high / low >= 20;
  const scale = log ? Math.log10 : (v) => v, y = (v) => top + height - ((scale(v) - scale(low)) / (scale(high) - scale(low) || 1)) * height;
  words(left, top - 8, `${field}${log ? " (logarithmic)" : ""}`, "start");
  for (const share of [0, 0.5, 1]) {
    const at = scale(low) + share * (scale(high) - scale(low)), value = log ? 10 ** at : at;
    svg.append(shape("line", { class: "gridline", x1: left, x2: right, y1: y(value), y2: y(value) }));
    words(left - 6, y(value) + 4, short(Number(value.toPrecision(3))));
  }
  const stairs = (member) => {
    const points = [];
    for (let k = 0; k + 1 < rounds.length; k++) {
      const found = rounds[k].members.find((m) => m.member === (Array.isArray(member) ? member[k] : member));
      if (!found || found.stopped) break;
      points.push(`${x(rounds[k].env_steps)},${y(found.values[field])}`, `${x(rounds[k + 1].env_steps)},${y(found.values[field])}`);
    }
    return points.join(" ");
  };
  for (const one of rounds[0].members) svg.append(shape("polyline", { class: "thin", points: stairs(one.member) }));
  if (line) svg.append(shape("polyline", { class: "line", points: stairs(line) }));
}

function payoffTable(payoffs) {
  const names = payoffs.versions, score = payoffs.score;
  if (!Array.isArray(names) || !Array.isArray(score) || names.length > 200) return null;
  const head = make("tr", {}, make("th", { text: "version" }), make("th", { class: "number", text: "Elo" }), ...names.map((n) => make("th", { text: `against ${n}` })));
  const rows = names.map((name, k) => make("tr", {}, make("th", { text: String(name) }), make("td", { class: "number", text: figure(Math.round(payoffs.elo?.[k] ?? NaN)) }),
    ...(score[k] || []).map((share) => {
      const cell = make("td", { text: typeof share === "number" ? share.toFixed(2) : "–" });
      if (typeof share === "number") cell.style.background = share >= 0.5 ? `color-mix(in srgb, var(--accent) ${Math.round((share - 0.5) * 110)}%, transparent)` : `color-mix(in srgb, var(--warn) ${Math.round((0.5 - share) * 110)}%, transparent)`;
      return cell;
    })));
  return make("div", { class: "table" }, make("table", { class: "payoffs" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}
