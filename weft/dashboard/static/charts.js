"use strict";
/* Curves. The server gives as many values as the chart has pixels, however many records there are; a zoom asks again. */

const COLOURS = {
  light: ["#2f6b5a", "#b4532a", "#3b5fa8", "#8a6d00", "#8c4a8f", "#1f7f92", "#a33b52", "#5c6b2c", "#6b5bb5", "#7a5a3c"],
  dark: ["#7cc5ae", "#f0996f", "#8fb0f2", "#dcc257", "#d49ad6", "#6fcbdd", "#f08fa3", "#b3c66f", "#b3a7f2", "#cfae8b"],
};
const AXES = { env_steps: "env steps", learn_steps: "learn steps", wall_seconds: "training time" };
const TITLES = {
  return_mean: "Return", "return_mean/*": "Return by seed, policy or member", "eval/return_mean": "Return in evaluation",
  env_steps_per_second: "Speed, env steps a second", lag: "Lag, versions behind", "busy/*": "Busy share of each stage",
  "time/*": "Share of the time of each stage", "queue/*": "Fill of streams", load: "Busy sides for each core", episode_length_mean: "Episode length, steps",
};

function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function palette() { return COLOURS[document.documentElement.dataset.theme === "dark" ? "dark" : "light"]; }
function colour(index) { const all = palette(); return all[index % all.length]; }
function axisTick(axis, value) { return axis === "wall_seconds" ? duration(value) : short(value); }

class Chart {
  /* ``page`` has the runs, their colours, the axis and the zoom; ``metric`` may end in * for all that begin so. */
  constructor(page, metric) {
    this.page = page; this.metric = metric; this.data = null; this.visible = false; this.busy = false; this.stale = true;
    this.note = make("small", { text: "" });
    this.box = make("div", { class: "chart" });
    this.card = make("div", { class: "card" }, make("h2", {}, make("span", { text: TITLES[metric] || metric.replace(/^loss\//, "Loss: ") }), this.note), this.box);
    this.card.dataset.metric = metric;
    this.tip = make("div", { class: "tip", hidden: true });
    this.seen = new IntersectionObserver((entries) => { this.visible = entries.some((e) => e.isIntersecting); if (this.visible && this.stale) this.load(); }, { rootMargin: "120px" });
    this.seen.observe(this.card);
    this.sized = new ResizeObserver(() => { if (this.plot && Math.abs(this.plot.width - this.box.clientWidth) > 4) this.plot.setSize(this.size()); });
    this.sized.observe(this.box);
  }
  size() { return { width: Math.max(200, this.box.clientWidth), height: this.box.clientHeight || 228 }; }
  refresh() { this.stale = true; if (this.visible) this.load(); }
  async load() {
    if (this.busy) return;
    this.busy = true; this.stale = false;
    const { zoom, axis, together } = this.page.curves;
    try {
      const data = await ask("/api/curves", { metric: this.metric, x: axis, run: this.page.shown(), points: Math.max(60, Math.round(this.box.clientWidth - 60)), from: zoom?.[0], to: zoom?.[1], together: together ? 1 : 0 });
      this.show(data);
      this.page.view?.legend?.();
    } catch (error) { this.note.textContent = error.message; }
    this.busy = false;
    if (this.stale && this.visible) this.load();
  }
  show(data) {
    this.data = data;
    this.note.textContent = data.read < 0.999 ? `reading records: ${Math.round(data.read * 100)} %` : "";
    if (data.read < 0.999) setTimeout(() => this.refresh(), 300);
    const kept = data.series.filter((s) => s.y.some((v) => v !== null));
    if (!kept.length) {
      this.plot?.destroy(); this.plot = null;
      this.box.replaceChildren(make("p", { class: "nothing", text: data.rows ? "Nothing recorded here yet." : "No records yet." }));
      return;
    }
    const many = this.metric.endsWith("*");
    const key = JSON.stringify([kept.map((s) => [s.run, s.label, Boolean(s.lowest)]), data.axis, document.documentElement.dataset.theme]);
    const columns = [data.x]; const series = [{}]; const bands = [];
    kept.forEach((one, index) => {
      const paint = many ? colour(index) : colour(this.page.colourOf(one.run));
      const points = one.y.reduce((n, v) => n + (v !== null), 0) < 24;
      columns.push(one.y);
      series.push({ label: one.label, stroke: paint, width: 1.6, spanGaps: true, points: { show: points, size: 5, fill: paint } });
      if (one.lowest) {
        columns.push(one.highest, one.lowest);
        const edge = { stroke: "transparent", width: 0, spanGaps: true, points: { show: false }, hidden: true };
        series.push({ ...edge }, { ...edge });
        bands.push({ series: [columns.length - 2, columns.length - 1], fill: paint + "2b" });
      }
    });
    this.columns = kept;
    if (this.plot && key === this.key) { this.plot.setData(columns, false); this.rescale(data, columns); return; }
    this.key = key;
    this.plot?.destroy();
    this.box.replaceChildren(this.tip);
    const line = css("--line"), faint = css("--soft"), font = `11px ${css("--sans")}`;
    const axis = { stroke: faint, font, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 }, gap: 5 };
    this.plot = new uPlot({
      ...this.size(), series, bands, legend: { show: false }, padding: [10, 20, 0, 0],
      cursor: { sync: { key: "curves" }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      scales: { x: { time: false, range: () => [this.data.low, this.data.high] } },
      axes: [{ ...axis, size: 30, space: 70, values: (u, ticks) => ticks.map((v) => axisTick(this.data.axis, v)) }, { ...axis, size: 52, values: (u, ticks) => ticks.map(short) }],
      hooks: {
        setSelect: [(u) => {
          if (u.select.width < 6) return;
          this.page.zoomTo(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        }],
        setCursor: [(u) => this.hover(u)],
      },
    }, columns, this.box);
    this.plot.over.addEventListener("dblclick", () => this.page.zoomTo(null));
    this.plot.over.addEventListener("mouseleave", () => { this.tip.hidden = true; });
  }
  rescale(data, columns) {
    let low = Infinity, high = -Infinity;
    for (const column of columns.slice(1)) for (const v of column) if (v !== null) { if (v < low) low = v; if (v > high) high = v; }
    const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    this.plot.batch(() => { this.plot.setScale("x", { min: data.low, max: data.high }); this.plot.setScale("y", { min: low - room, max: high + room }); });
  }
  hover(u) {
    const { left, top, idx } = u.cursor;
    if (left < 0 || idx === null || idx === undefined || !u.over.matches(":hover")) { this.tip.hidden = true; return; }
    const rows = [];
    this.columns.forEach((one, index) => {
      const value = nearest(one.y, idx);
      if (value !== null) rows.push([this.metric.endsWith("*") ? colour(index) : colour(this.page.colourOf(one.run)), one.label, value]);
    });
    this.tip.replaceChildren(make("div", { class: "at", text: `${axisTick(this.data.axis, this.data.x[idx])} ${this.data.axis === "wall_seconds" ? "" : AXES[this.data.axis]}` }),
      ...rows.slice(0, 12).map(([paint, label, value]) => make("div", {}, make("i", { style: { background: paint } }), make("span", { text: label }), make("b", { text: figure(value) }))));
    this.tip.hidden = rows.length === 0;
    const right = left > u.over.clientWidth / 2;
    Object.assign(this.tip.style, { left: right ? "auto" : `${left + 66}px`, right: right ? `${this.box.clientWidth - left - 40}px` : "auto", top: `${Math.max(0, Math.min(top, 120))}px` });
  }
  close() { this.plot?.destroy(); this.seen.disconnect(); this.sized.disconnect(); }
}

/* The value at a place, or the nearest one that there is. */
function nearest(values, at) {
  for (let d = 0; d < values.length; d++) {
    const before = values[at - d]; if (before !== null && before !== undefined) return before;
    const after = values[at + d]; if (after !== null && after !== undefined) return after;
    if (at - d < 0 && at + d >= values.length) break;
  }
  return null;
}

/* Which charts there are for what the runs have recorded, in the order in which one looks at them. */
function chartsFor(metrics) {
  const has = (name) => metrics.includes(name), any = (prefix) => metrics.some((m) => m.startsWith(prefix));
  const found = ["return_mean", "env_steps_per_second"];
  if (has("eval/return_mean")) found.splice(1, 0, "eval/return_mean");
  if (any("return_mean/")) found.splice(1, 0, "return_mean/*");
  found.push(...metrics.filter((m) => m.startsWith("loss/")));
  if (has("lag")) found.push("lag");
  if (any("busy/")) found.push("busy/*"); else if (any("time/")) found.push("time/*");
  if (any("queue/")) found.push("queue/*");
  if (has("episode_length_mean")) found.push("episode_length_mean");
  if (has("load")) found.push("load");
  const known = new Set([...found, "env_steps", "learn_steps", "wall_seconds", "episodes", "saved_learn_steps", "lag_max"]);
  const grouped = ["eval/", "loss/", "busy/", "time/", "queue/", "lag/", "return_mean/"];
  const others = metrics.filter((m) => !known.has(m) && !grouped.some((prefix) => m.startsWith(prefix)));
  const families = new Set(others.filter((m) => m.includes("/")).map((m) => `${m.slice(0, m.indexOf("/"))}/*`));
  return [...found, ...others.filter((m) => !m.includes("/")).slice(0, 12), ...[...families].slice(0, 12)];
}
