"use strict";
/* One object a view: ``open(box, page)`` builds it, ``close`` lets go. Events come through the methods named after them. */

class DataflowView {
  open(box, page) {
    this.page = page; this.chart = new Flowchart();
    this.scroll = make("div", { class: "scroll" }, this.chart.svg);
    this.advice = make("div", { class: "advice", hidden: true }, make("b"), make("span"));
    this.measured = make("small", {});
    this.notes = make("ul", { class: "notes", id: "notes" });
    this.ledger = make("div", { class: "table" });
    const key = (cls, words) => make("span", {}, make("i", { class: cls }), words);
    box.append(
      make("div", { class: "card" }, make("h2", {}, make("span", { text: "Dataflow" }), this.measured), this.scroll, this.advice,
        this.legend = make("div", { class: "legend" }, key("wide", "bytes a second, logarithmic"), key("k-ready", "at work"), key("k-starting", "starting"), key("k-gone", "gone"))),
      make("div", { class: "two" }, make("div", { class: "card" }, make("h2", { text: "What happened" }), this.notes), make("div", { class: "card" }, make("h2", { text: "Samples" }), this.ledger)));
    if (page.picture) this.picture(page.picture);
  }
  picture(data) {
    this.scroll.classList.toggle("still", data.state !== "training");
    this.chart.draw(data.scene);
    this.legend.hidden = !data.workers.length;
    if (!data.scene.shapes.length) this.scroll.replaceChildren(make("p", { class: "nothing", text: "This run has not recorded how it is laid out." }));
    const said = { now: data.state === "training" ? "measured over the last seconds" : "measured over its last seconds", "the run": "measured over the whole run" }[data.measured];
    this.measured.textContent = said || (data.live ? "one process: nothing travels between workers" : "");
    const [bound, ...rest] = (data.advice || "").split(":");
    this.advice.hidden = !data.advice;
    this.advice.classList.toggle("calm", !bound.endsWith("bound"));
    this.advice.children[0].textContent = bound; this.advice.children[1].textContent = rest.join(":").trim();
    const notes = [...(data.notes || [])].reverse();
    this.notes.replaceChildren(...(notes.length ? notes.map((n) => make("li", { class: n.kind }, make("time", { text: new Date(n.at * 1000).toLocaleTimeString("en-GB") }), make("span", { text: n.text })))
      : [make("li", { class: "none", text: "Nothing out of the ordinary." })]));
    this.ledger.replaceChildren(ledgerTable(data.samples) || make("p", { class: "nothing", text: "No samples counted yet." }));
  }
  close() {}
}

function ledgerTable(samples) {
  if (!samples || samples.produced === undefined) return null;
  const dropped = Object.entries(samples.dropped || {});
  const rows = [["produced", samples.produced], ...(samples.added ? [["added by maps", samples.added]] : []), ["trained on", samples.trained], ...dropped.map(([why, n]) => [`dropped: ${why}`, n]), ["on their way", samples.in_flight]];
  return make("table", {}, make("tbody", {}, ...rows.map(([name, n]) => make("tr", {}, make("td", { text: name }), make("td", { class: "number", text: figure(n) })))));
}

class CurvesView {
  open(box, page) {
    this.page = page; this.charts = new Map();
    const select = make("select", { "aria-label": "x axis", onchange: (e) => { page.curves.axis = e.target.value; page.zoomTo(null); page.remember(); } },
      ...Object.entries(AXES).map(([value, text]) => make("option", { value, text, selected: value === page.curves.axis })));
    this.together = make("button", { class: "quiet", type: "button", "aria-pressed": String(page.curves.together), text: "Seeds together",
      title: "Runs that differ in nothing but their seeds become one curve, with the lowest and the highest", onclick: () => { page.curves.together = !page.curves.together; this.together.setAttribute("aria-pressed", String(page.curves.together)); this.reload(); page.remember(); } });
    this.reset = make("button", { class: "quiet", type: "button", text: "Whole range", title: "Double-click does the same", hidden: !page.curves.zoom, onclick: () => page.zoomTo(null) });
    this.find = make("input", { type: "text", placeholder: "Filter metrics", "aria-label": "Filter metrics", oninput: () => this.arrange() });
    this.keys = make("div", { class: "keys" });
    this.grid = make("div", { class: "charts" });
    box.append(make("div", { class: "tools" }, make("label", {}, "over", select), this.together, this.find, this.reset), this.keys, this.grid);
    this.refresh();
  }
  async refresh() {
    const shown = this.page.shown();
    const details = await Promise.all(shown.map((run) => ask("/api/run", { run }).catch(() => null)));
    this.metrics = [...new Set(details.filter(Boolean).flatMap((d) => d.metrics))];
    this.arrange();
  }
  arrange() {
    const word = this.find.value.trim().toLowerCase();
    const wanted = chartsFor(this.metrics || []).filter((m) => !word || m.toLowerCase().includes(word) || (TITLES[m] || "").toLowerCase().includes(word));
    for (const [metric, chart] of this.charts) if (!wanted.includes(metric)) { chart.card.remove(); chart.close(); this.charts.delete(metric); }
    for (const metric of wanted) {
      if (!this.charts.has(metric)) this.charts.set(metric, new Chart(this.page, metric));
      this.grid.append(this.charts.get(metric).card);
    }
    this.legend(); this.reload();
  }
  legend() {
    const drawn = [...this.charts.values()].find((chart) => chart.data?.series.length && !chart.metric.endsWith("*"));
    const groups = this.page.curves.together ? drawn?.data.series : null;
    const rows = groups ? groups.map((s) => [s.run, s.label]) : this.page.shown().map((id) => [id, this.page.nameOf(id)]);
    this.keys.replaceChildren(...rows.map(([id, words]) => make("span", {}, make("i", { style: { background: colour(this.page.colourOf(id)) } }), words)));
  }
  reload() { this.reset.hidden = !this.page.curves.zoom; for (const chart of this.charts.values()) chart.refresh(); }
  records() { const now = Date.now(), awake = document.documentElement.classList.contains("awake"); if (now - (this.at || 0) > (awake ? 1900 : 4900)) { this.at = now; this.reload(); } if (!this.metrics?.length) this.refresh(); }
  selected() { this.legend(); this.refresh(); }
  themed() { this.legend(); for (const chart of this.charts.values()) { chart.key = ""; chart.refresh(); } }
  close() { for (const chart of this.charts.values()) chart.close(); }
}

class CompareView {
  open(box, page) { this.box = box; this.page = page; this.selected(); }
  async selected() {
    const shown = this.page.shown();
    if (shown.length < 2) { this.box.replaceChildren(make("p", { class: "nothing", text: "Tick two runs or more in the list: their configs are compared here." })); return; }
    const found = await ask("/api/compare", { run: shown }).catch((error) => ({ error: error.message }));
    if (found.error) { this.box.replaceChildren(make("p", { class: "nothing", text: found.error })); return; }
    const say = (v) => (v === null || v === undefined ? "–" : typeof v === "string" ? v : JSON.stringify(v));
    const head = make("tr", {}, make("th", { text: "" }), ...found.runs.map((r) => make("th", {}, make("span", { class: "swatch", style: { background: colour(this.page.colourOf(r.id)), display: "inline-block", marginRight: "6px", verticalAlign: "3px" } }), r.name)));
    const row = (name, values, mark) => make("tr", {}, make("th", { text: name, scope: "row" }), ...values.map((v, k) => make("td", { text: say(v), class: mark && k && say(v) !== say(values[0]) ? "differs" : "" })));
    const o = found.overviews;
    const stands = [row("state", o.map((r) => r.state)), row("return", o.map((r) => figure(r.return_mean))), row("env steps", o.map((r) => figure(r.env_steps))), row("steps/s", o.map((r) => figure(r.env_steps_per_second)))];
    const rows = found.fields.map((f) => row(f.field, f.values, true));
    this.box.replaceChildren(
      make("div", { class: "card" }, make("h2", {}, "What differs", make("small", { text: `${found.same} fields are the same` })),
        rows.length ? make("div", { class: "table" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))) : make("p", { class: "nothing", text: "Nothing: the configs are the same." })),
      make("div", { class: "card" }, make("h2", { text: "How they stand" }), make("div", { class: "table" }, make("table", {}, make("thead", {}, head.cloneNode(true)), make("tbody", {}, ...stands)))));
  }
  close() {}
}

class LogsView {
  open(box, page) {
    this.page = page;
    this.select = make("select", { "aria-label": "Log of", onchange: () => { page.log = this.select.value; this.show(); } });
    this.follow = make("button", { class: "quiet", type: "button", "aria-pressed": "true", text: "Follow", onclick: () => { const on = this.follow.getAttribute("aria-pressed") !== "true"; this.follow.setAttribute("aria-pressed", String(on)); } });
    this.note = make("span", { class: "hint" });
    this.pre = make("pre", { class: "log", tabindex: "0", "aria-label": "Log" });
    box.append(make("div", { class: "tools" }, make("label", {}, "worker", this.select), this.follow, this.note), this.pre);
    this.timer = setInterval(() => this.more(), 1500);
    this.start();
  }
  async start() {
    const run = await ask("/api/run", { run: this.page.run }).catch(() => ({ logs: [] }));
    this.select.replaceChildren(...run.logs.map((name) => make("option", { value: name, text: name.replace(/\.log$/, "") })));
    if (!run.logs.length) { this.pre.textContent = "This run has no logs: in one process there are no workers, and no environment raised anything."; return; }
    if (run.logs.includes(this.page.log)) this.select.value = this.page.log;
    this.show();
  }
  async show() { this.next = undefined; this.pre.textContent = ""; await this.more(); }
  async more() {
    if (!this.select.value || this.busy || document.hidden) return;
    this.busy = true;
    const name = this.select.value;
    try {
      const part = await ask("/api/log", { run: this.page.run, name, after: this.next });
      if (name === this.select.value) {
        if (this.next === undefined) { this.pre.textContent = part.text || "Nothing was printed."; this.note.textContent = part.begin ? `the last ${Math.round((part.size - part.begin) / 1024)} KiB of ${Math.round(part.size / 1024)}` : ""; }
        else if (part.begin !== this.next) this.pre.textContent = part.text;
        else if (part.text) { if (this.pre.textContent === "Nothing was printed.") this.pre.textContent = ""; this.pre.append(part.text); }
        this.next = part.next;
        if (part.text && this.follow.getAttribute("aria-pressed") === "true") this.pre.scrollTop = this.pre.scrollHeight;
      }
    } catch (error) { this.note.textContent = error.message; }
    this.busy = false;
  }
  close() { clearInterval(this.timer); }
}

class PicturesView {
  async open(box, page) {
    const run = await ask("/api/run", { run: page.run }).catch((error) => ({ error: error.message }));
    if (run.error) { box.append(make("p", { class: "nothing", text: run.error })); return; }
    const parts = [];
    if (run.videos.length) {
      parts.push(make("div", { class: "card" }, make("h2", { text: "Videos" }), make("div", { class: "media" }, ...run.videos.map((name) => {
        const src = `/api/video?run=${encodeURIComponent(run.id)}&name=${encodeURIComponent(name)}`;
        const media = /\.(gif|png)$/.test(name) ? make("img", { src, alt: `Video ${name}`, loading: "lazy" }) : make("video", { src, controls: true, muted: true, loop: true, preload: "metadata" });
        return make("figure", {}, media, make("figcaption", { text: name.replace(/\.\w+$/, (e) => e === ".gif" ? "" : e).replace(/^(\d+)$/, (n) => `at ${figure(Number(n))} env steps`) }));
      }))));
    }
    const best = Number.isInteger(run.summary.best) ? run.summary.best : run.record.best;
    const lineage = run.lineage.rounds ? lineagePicture(run.lineage, best) : null;
    if (lineage) parts.push(make("div", { class: "card" }, make("h2", {}, "Lineage", make("small", { text: "stronger: a higher return; arcs: copies; the line: the best member’s ancestry" })), make("div", { class: "scroll" }, lineage)));
    const payoffs = run.payoffs.versions ? payoffTable(run.payoffs) : null;
    if (payoffs) parts.push(make("div", { class: "card" }, make("h2", {}, "Pay-offs", make("small", { text: `part of ${figure(run.payoffs.games)} games of each pair that the row won` })), payoffs));
    box.append(...(parts.length ? parts : [make("p", { class: "nothing" }, "No videos, lineage or pay-offs here. ", make("code", { text: `weft eval ${run.name} --video` }), " records an episode.")]));
  }
  close() {}
}

class DetailsView {
  async open(box, page) {
    const run = await ask("/api/run", { run: page.run }).catch((error) => ({ error: error.message }));
    if (run.error) { box.append(make("p", { class: "nothing", text: run.error })); return; }
    const say = (v) => (v === null ? "–" : typeof v === "string" ? v : typeof v === "number" ? String(v) : JSON.stringify(v));
    const table = (pairs) => make("div", { class: "table" }, make("table", {}, make("tbody", {}, ...pairs.map(([n, v]) => make("tr", {}, make("th", { text: n, scope: "row" }), make("td", { text: say(v) }))))));
    const flat = (o, prefix = "") => Object.entries(o).flatMap(([n, v]) => (v && typeof v === "object" && !Array.isArray(v) && Object.keys(v).length ? flat(v, `${prefix}${n}.`) : [[prefix + n, v]]));
    const { evaluation, members, ...rest } = run.summary;
    const cards = [];
    if (evaluation) cards.push(make("div", { class: "card" }, make("h2", { text: "Evaluation" }), table(flat(evaluation))));
    if (Array.isArray(members)) cards.push(make("div", { class: "card" }, make("h2", { text: "Members" }), make("div", { class: "table" }, make("table", {}, make("thead", {}, make("tr", {}, ...["member", "return", "env steps", "exit", "values"].map((t) => make("th", { text: t })))),
      make("tbody", {}, ...members.map((m) => make("tr", {}, make("td", { text: say(m.member) }), make("td", { text: figure(m.return_mean) }), make("td", { text: figure(m.env_steps) }), make("td", { text: say(m.exit ?? "") }), make("td", { text: say(m.values) }))))))));
    const numbers = Object.entries(run.record).filter(([, v]) => typeof v === "number");
    box.append(make("div", { class: "two" },
      make("div", {}, make("div", { class: "card" }, make("h2", {}, "Config", make("small", { class: "mono", text: run.folder })), table(flat(run.config)))),
      make("div", {}, ...cards, Object.keys(rest).length ? make("div", { class: "card" }, make("h2", { text: "Summary" }), table(flat(rest))) : null,
        numbers.length ? make("div", { class: "card" }, make("h2", { text: "Newest record" }), table(numbers.map(([n, v]) => [n, figure(v)]))) : null)));
  }
  close() {}
}

const VIEWS = { dataflow: ["Dataflow", DataflowView], curves: ["Curves", CurvesView], compare: ["Compare", CompareView], logs: ["Logs", LogsView], pictures: ["Pictures", PicturesView], details: ["Details", DetailsView] };
