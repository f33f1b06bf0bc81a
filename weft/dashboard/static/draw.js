"use strict";
/* Small things that everything here is made of. Text of a run is only ever set as text: nothing is parsed as HTML. */

const SVG = "http://www.w3.org/2000/svg";

function make(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function shape(tag, values) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(values)) node.setAttribute(name, value);
  return node;
}

function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e9 || size < 1e-4) return value.toExponential(1).replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en-GB");
  if (Number.isInteger(value)) return String(value);
  return size < 0.1 ? String(Number(value.toPrecision(3))) : value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, scale] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (size >= scale * 0.99995) return `${Number((value / scale).toPrecision(size / scale >= 100 ? 3 : 3))}${unit}`;
  }
  return size === 0 ? "0" : size < 1e-3 ? value.toExponential(0).replace("e+", "e") : String(Number(value.toPrecision(4)));
}

function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const days = Math.floor(whole / 86400), hours = Math.floor((whole % 86400) / 3600);
  const minutes = Math.floor((whole % 3600) / 60), rest = whole % 60, two = (n) => String(n).padStart(2, "0");
  if (days) return `${days} d ${two(hours)}:${two(minutes)}`;
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

function plural(count, word) { return `${figure(count)} ${word}${count === 1 ? "" : "s"}`; }

async function ask(path, query = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null) url.searchParams.append(name, one);
  }
  const answer = await fetch(url, { credentials: "same-origin" });
  const body = await answer.json().catch(() => ({ error: answer.status === 401 ? "the token is not known any more: open the URL that weft watch printed" : `HTTP ${answer.status}` }));
  if (!answer.ok) throw new Error(body.error || `HTTP ${answer.status}`);
  return body;
}

/* The dataflow. The server has laid it out; shapes keep their elements from one picture to the next, so that what moves
   does not begin anew, and a change is a change of attributes. */
class Flowchart {
  constructor() {
    this.svg = shape("svg", { class: "flowchart", role: "img", "aria-label": "The dataflow: groups, their workers, and the streams between them" });
    this.known = new Map();
  }
  draw(scene) {
    this.svg.setAttribute("viewBox", `0 0 ${scene.width || 1} ${scene.height || 1}`);
    this.svg.style.maxWidth = `${Math.round(scene.width * 1.25)}px`;
    this.svg.style.minWidth = scene.width > 400 ? `${Math.round(scene.width * 0.8)}px` : "";
    const seen = new Set();
    for (const one of scene.shapes) {
      seen.add(one.id);
      let node = this.known.get(one.id);
      if (node && node.tagName !== one.kind) { node.remove(); node = undefined; }
      if (!node) {
        node = shape(one.kind, {});
        this.known.set(one.id, node);
        this.svg.append(node);
      }
      this.update(node, one);
    }
    for (const [id, node] of this.known) if (!seen.has(id)) { node.remove(); this.known.delete(id); }
  }
  update(node, one) {
    const set = (name, value) => { if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value); };
    set("class", one.cls);
    if (one.kind === "rect") for (const name of ["x", "y", "width", "height", "rx"]) set(name, one[name]);
    if (one.kind === "text") {
      set("x", one.x); set("y", one.y); set("text-anchor", one.anchor);
      if (node.textContent !== one.words) node.textContent = one.words;
    }
    if (one.kind === "path") {
      set("d", one.d);
      if (one.stroke) set("stroke-width", one.stroke);
      if (one.seconds) node.style.animationDuration = `${one.seconds * 4}s`;
    }
    if (one.tip) {
      let tip = node.querySelector("title");
      if (!tip) { tip = shape("title", {}); node.append(tip); }
      if (tip.textContent !== one.tip) tip.textContent = one.tip;
    }
  }
}
