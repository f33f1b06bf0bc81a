"use strict";
/* The page: the list of runs, the run that is looked at, its views, and the events that keep them up to date. */

const $ = (id) => document.getElementById(id);
const narrow = matchMedia("(max-width: 860px)");

class Page {
  constructor() {
    this.runs = []; this.run = ""; this.tab = "dataflow"; this.ticked = []; this.order = []; this.picture = null; this.log = "";
    this.curves = { axis: "env_steps", together: false, zoom: null };
    this.view = null;
    this.recall();
    this.theme(localStorage.getItem("weft-theme") || "system");
    $("tabs").append(...Object.entries(VIEWS).map(([key, [title]]) => make("button", { role: "tab", id: `tab-${key}`, type: "button", text: title, onclick: () => this.open(key) })));
    $("find").addEventListener("input", () => this.list());
    $("theme").addEventListener("click", () => this.theme({ system: "light", light: "dark", dark: "system" }[this.themed]));
    $("menu").addEventListener("click", () => this.menu(!$("side").classList.contains("open")));
    document.addEventListener("keydown", (event) => this.key(event));
    for (const sign of ["pointermove", "pointerdown", "keydown", "wheel"]) document.addEventListener(sign, () => this.awake(), { passive: true });
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.source?.close(); else this.listen(); });
    narrow.addEventListener("change", () => this.listen());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.theme(this.themed));
    this.begin();
  }
  async begin() {
    try {
      const found = await ask("/api/runs");
      $("where").textContent = `${found.host}:${found.root}`;
      this.take(found.runs);
    } catch (error) { this.empty("The server does not answer", error.message); }
    this.listen();
  }

  /* what is looked at: kept in the address, so that a reload or a bookmark comes back to it */
  recall() {
    const kept = new URLSearchParams(location.hash.slice(1));
    this.run = kept.get("run") || ""; this.tab = VIEWS[kept.get("tab")] ? kept.get("tab") : "dataflow";
    this.ticked = (kept.get("with") || "").split(",").filter(Boolean); this.order = [...this.ticked];
    if (AXES[kept.get("x")]) this.curves.axis = kept.get("x");
    this.curves.together = kept.get("together") === "1";
  }
  remember() {
    const kept = new URLSearchParams({ run: this.run, tab: this.tab });
    if (this.ticked.length) kept.set("with", this.ticked.join(","));
    if (this.curves.axis !== "env_steps") kept.set("x", this.curves.axis);
    if (this.curves.together) kept.set("together", "1");
    history.replaceState(null, "", `#${kept}`);
  }

  take(runs) {
    this.runs = runs;
    const known = new Set(runs.map((r) => r.id));
    this.ticked = this.ticked.filter((id) => known.has(id));
    if (!known.has(this.run)) {
      const first = [...runs].sort((a, b) => (b.state === "training") - (a.state === "training") || b.changed_at - a.changed_at)[0];
      if (first) this.look(first.id); else this.run = "";
    }
    if (!runs.length) this.empty("No runs here yet", "Train one, and it appears by itself:", "weft train ppo CartPole-v1");
    else { $("empty").hidden = true; $("run").hidden = false; }
    this.list();
    this.head();
    if (!this.view && this.run) this.open(this.tab);
  }
  empty(title, words, code) {
    $("run").hidden = true; $("empty").hidden = false;
    $("empty").replaceChildren(make("h2", { text: title }), make("p", { text: words }), code ? make("p", {}, make("code", { text: code })) : null);
  }

  /* What moves does so while somebody is at the page, and rests after: movement is most of what an open page costs. */
  awake() {
    document.documentElement.classList.add("awake");
    clearTimeout(this.resting);
    this.resting = setTimeout(() => document.documentElement.classList.remove("awake"), 10000);
  }

  /* the list */
  list() {
    const word = $("find").value.trim().toLowerCase();
    const wanted = this.runs.filter((r) => !word || `${r.name} ${r.algorithm} ${r.environment} ${r.plan} ${r.state}`.toLowerCase().includes(word));
    const items = wanted.filter((run) => word || this.inSight(run)).map((run) => this.item(run));
    const focused = document.activeElement?.closest?.(".item")?.dataset.run, tag = document.activeElement?.tagName;
    $("runs").replaceChildren(...(items.length ? items : [make("p", { class: "hint", text: "No run matches." })]));
    if (focused) $("runs").querySelector(`[data-run="${CSS.escape(focused)}"] ${tag}`)?.focus({ preventScroll: true });
  }
  /* members of a population are listed while it, or one of them, is looked at or ticked */
  inSight(run) {
    const family = run.name.split("/")[0];
    if (family === run.name) return true;
    return [...this.ticked, this.run].some((id) => this.nameOf(id).split("/")[0] === family);
  }
  item(run) {
    const shown = this.shown().includes(run.id);
    const box = make("input", { type: "checkbox", "aria-label": `${run.name} in the curves`, onchange: (e) => this.tick(run.id, e.target.checked) });
    box.checked = this.ticked.includes(run.id);
    const item = make("div", { class: `item${run.id === this.run ? " on" : ""}${run.name.includes("/") ? " member" : ""}` }, make("label", {}, box),
      make("button", { type: "button", "aria-current": run.id === this.run ? "true" : undefined, onclick: () => { this.look(run.id); this.menu(false); } },
        make("div", { class: "n" }, make("i", { class: `dot ${run.state}`, title: run.state }), make("b", { text: run.name, title: run.name }), shown ? make("i", { class: "swatch", style: { background: colour(this.colourOf(run.id)) } }) : null),
        make("div", { class: "m" }, make("span", { text: [run.algorithm, run.environment].filter(Boolean).join(" · ") }), make("span", { text: run.return_mean === null ? "" : figure(run.return_mean) }))));
    item.dataset.run = run.id;
    return item;
  }
  tick(id, on) {
    this.ticked = on ? [...this.ticked, id] : this.ticked.filter((other) => other !== id);
    this.list(); this.remember(); this.listen(); this.view?.selected?.();
  }
  /* the runs in curves and comparison: those ticked, and the one that is looked at */
  shown() { return [...new Set([...this.ticked, this.run])].filter((id) => this.runs.some((r) => r.id === id)); }
  colourOf(id) { if (!this.order.includes(id)) this.order.push(id); return this.order.indexOf(id); }
  nameOf(id) { return this.runs.find((r) => r.id === id)?.name || id; }

  /* the run */
  look(id) {
    if (id === this.run && this.view) return;
    this.run = id; this.picture = null; this.curves.zoom = null;
    this.list(); this.head(); this.open(this.tab); this.listen();
  }
  head() {
    const run = this.runs.find((r) => r.id === this.run);
    if (!run) return;
    document.title = `${run.name} · Weft`;
    $("name").textContent = run.name;
    $("state").textContent = run.state; $("state").className = `pill ${run.state}`;
    $("about").replaceChildren([run.algorithm, run.environment].filter(Boolean).join(" on "), run.plan ? " · plan " : "", run.plan ? make("code", { text: run.plan }) : "", run.seed === null ? "" : ` · seed ${run.seed}`);
    const share = run.total_steps ? Math.min(1, run.env_steps / run.total_steps) : 0;
    $("bar").firstElementChild.style.width = `${100 * share}%`; $("bar").setAttribute("aria-valuenow", String(Math.round(100 * share)));
    this.tiles(run, share);
  }
  tiles(run, share) {
    const record = this.picture?.id === run.id ? this.picture.record : {};
    const left = run.env_steps_per_second > 0 && run.total_steps ? (run.total_steps - run.env_steps) / run.env_steps_per_second : NaN;
    const training = run.state === "training";
    const tiles = [
      ["Return", figure(run.return_mean), record.episodes === undefined ? "" : record.episodes > 100 ? `last 100 of ${figure(record.episodes)}` : plural(record.episodes, "episode")],
      ["Speed", figure(run.env_steps_per_second), "env steps/s"],
      ["Env steps", short(run.env_steps), run.total_steps ? `${Math.round(100 * share)} % of ${short(run.total_steps)}` : ""],
      ["Time", duration(record.wall_seconds ?? NaN), training && share < 1 && Number.isFinite(left) ? `${duration(left)} left` : "of training"],
    ];
    if (record["eval/return_mean"] !== undefined) tiles.splice(1, 0, ["Evaluation", figure(record["eval/return_mean"]), record["eval/return_low"] !== undefined ? `${figure(record["eval/return_low"])} to ${figure(record["eval/return_high"])}` : ""]);
    if (record.lag !== undefined) tiles.push(["Lag", figure(record.lag), `${record.lag_max === undefined ? "" : `${record.lag_max} at most`}`]);
    tiles.push(["Restarts", figure(run.restarts), "of workers", run.restarts > 0]);
    const box = $("tiles");
    if (box.children.length !== tiles.length) box.replaceChildren(...tiles.map(() => make("div", { class: "tile" }, make("span"), make("b"), make("em"))));
    tiles.forEach(([name, value, note, alarm], k) => {
      const tile = box.children[k];
      tile.classList.toggle("alarm", Boolean(alarm));
      [name, value, note].forEach((words, n) => { if (tile.children[n].textContent !== words) tile.children[n].textContent = words; });
    });
  }
  open(tab) {
    this.view?.close();
    this.tab = tab;
    for (const key of Object.keys(VIEWS)) { const on = key === tab; $(`tab-${key}`).setAttribute("aria-selected", String(on)); $(`tab-${key}`).tabIndex = on ? 0 : -1; }
    const box = make("div");
    $("view").replaceChildren(box);
    $("view").setAttribute("aria-labelledby", `tab-${tab}`);
    this.view = new VIEWS[tab][1]();
    this.view.open(box, this);
    this.remember();
    if (this.run) ask("/api/run", { run: this.run }).then((found) => { $("problems").textContent = [...found.problems, found.summary.error].filter(Boolean).join("\n"); }).catch(() => {});
  }
  zoomTo(low, high) { this.curves.zoom = low === null ? null : [low, high]; this.view?.reload?.(); }

  /* events */
  listen() {
    this.source?.close();
    const query = new URLSearchParams({ run: this.run, narrow: narrow.matches ? "1" : "0" });
    for (const id of this.shown()) query.append("with", id);
    const source = new EventSource(`/api/events?${query}`);
    this.source = source;
    const on = (name, take) => source.addEventListener(name, (event) => { if (this.source === source) take(JSON.parse(event.data)); });
    const link = (cls, words) => { $("link").className = `link ${cls}`; $("link").lastElementChild.textContent = words; };
    source.onopen = () => link("on", "live");
    source.onerror = () => link("off", "no connection");
    on("runs", (runs) => this.take(runs));
    on("picture", (picture) => { if (picture.id === this.run) { this.picture = picture; this.head(); this.view?.picture?.(picture); } });
    on("records", () => this.view?.records?.());
  }

  /* keys and looks */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) { if (event.key === "Escape") event.target.blur(); return; }
    const tabs = Object.keys(VIEWS), here = tabs.indexOf(this.tab);
    if (event.key === "/") { event.preventDefault(); if (narrow.matches) this.menu(true); $("find").focus(); }
    else if (event.key === "t") $("theme").click();
    else if (event.key === "Escape") this.menu(false);
    else if (event.key >= "1" && event.key <= String(tabs.length)) this.open(tabs[Number(event.key) - 1]);
    else if (event.target.closest("#tabs") && (event.key === "ArrowRight" || event.key === "ArrowLeft")) { const next = tabs[(here + (event.key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length]; this.open(next); $(`tab-${next}`).focus(); }
    else if (event.key === "j" || event.key === "k") { const all = this.runs.map((r) => r.id), at = all.indexOf(this.run) + (event.key === "j" ? 1 : -1); if (all[at]) this.look(all[at]); }
  }
  menu(open) { $("side").classList.toggle("open", open); $("menu").setAttribute("aria-expanded", String(open)); }
  theme(name) {
    this.themed = name;
    localStorage.setItem("weft-theme", name);
    const dark = name === "dark" || (name === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    $("theme").textContent = { system: "Auto", light: "Light", dark: "Dark" }[name];
    this.list(); this.view?.themed?.(); this.view?.selected?.();
  }
}

window.page = new Page();
