// Charts as inline SVG. Each has a text beside it that says the same: a legend with numbers, or a table.

import { h, svg, visible } from "./dom.js";
import { number, percent } from "./format.js";

const HUES = 8; // classes hue-0 to hue-7 in the style sheet

/** @typedef {{label: string, value: number, note?: string, link?: string | null}} Part */

/**
 * One bar of several parts, with a legend: where the tokens of a prompt go.
 * @param {Part[]} parts
 * @param {{unit: string, whole?: number | null, wholeLabel?: string}} options `whole` is what the bar would be when full
 */
export function partsBar(parts, { unit, whole = null, wholeLabel = "free" }) {
  const used = parts.reduce((sum, each) => sum + each.value, 0);
  const total = Math.max(whole ?? 0, used, 1);
  let x = 0;
  const shapes = parts.map((each, place) => {
    const width = (each.value / total) * 100;
    const shape = svg("rect", { x, y: 0, width, height: 10, class: `hue-${place % HUES}` }, svg("title", null, `${visible(each.label)}: ${number(each.value)} ${unit}`));
    x += width;
    return shape;
  });
  const label = parts.map((each) => `${visible(each.label)} ${number(each.value)} ${unit}`).join(", ");
  const picture = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": label, class: "parts-bar" }, svg("rect", { x: 0, y: 0, width: 100, height: 10, class: "ground" }), shapes);
  const rows = parts.map((each, place) => {
    const name = h("bdi", { dir: "auto" }, visible(each.label));
    return h("tr", null, h("td", null, h("span", { class: `swatch hue-${place % HUES}`, "aria-hidden": "true" }), each.link ? h("a", { href: each.link }, name) : name), h("td", { class: "num" }, `${number(each.value)} ${unit}`), h("td", { class: "num" }, percent(each.value / total)), h("td", { class: "hint" }, each.note ?? ""));
  });
  if (whole !== null && whole > used) {
    rows.push(h("tr", null, h("td", null, h("span", { class: "swatch ground", "aria-hidden": "true" }), wholeLabel), h("td", { class: "num" }, `${number(whole - used)} ${unit}`), h("td", { class: "num" }, percent((whole - used) / total)), h("td")));
  }
  return h("figure", { class: "chart" }, picture, h("table", { class: "legend" }, h("tbody", null, rows)));
}

/**
 * Columns over time, such as cost per day. `show` writes a value with its unit.
 * @param {{label: string, value: number}[]} values
 * @param {{title: string, show: (value: number) => string}} options
 */
export function columns(values, { title, show }) {
  const top = Math.max(...values.map((each) => each.value), 0) || 1;
  const width = 100 / Math.max(values.length, 1);
  const shapes = values.map((each, place) => {
    const height = (each.value / top) * 40;
    return svg("rect", { x: place * width + width * 0.1, y: 40 - height, width: width * 0.8, height, class: "hue-0" }, svg("title", null, `${visible(each.label)}: ${show(each.value)}`));
  });
  const sum = values.reduce((all, each) => all + each.value, 0);
  const first = values[0]?.label ?? "";
  const last = values[values.length - 1]?.label ?? "";
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", null, title, ": ", show(sum), " in all, at most ", show(Math.max(...values.map((each) => each.value), 0)), " a day"),
    svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": `${title}, ${first} to ${last}`, class: "columns" }, shapes),
    h("div", { class: "axis" }, h("span", null, first), h("span", null, last)),
  );
}

/**
 * Spans on a common scale of time: the journal of a run.
 * @param {{label: string, startMs: number, ms: number, kind?: number}[]} spans
 * @param {number} totalMs
 */
export function timeline(spans, totalMs) {
  const total = Math.max(totalMs, 1);
  const shapes = spans.map((each, place) =>
    svg("rect", { x: (each.startMs / total) * 100, y: place * 6, width: Math.max((each.ms / total) * 100, 0.4), height: 4, class: `hue-${(each.kind ?? 0) % HUES}` }, svg("title", null, each.label)),
  );
  const picture = svg("svg", { viewBox: `0 0 100 ${Math.max(spans.length * 6, 6)}`, preserveAspectRatio: "none", role: "img", "aria-label": spans.map((each) => each.label).join("; ").slice(0, 500), class: "timeline" }, shapes);
  picture.style.height = `${Math.max(spans.length, 1) * 0.9}rem`;
  return picture;
}

/** How much of a limit is used. @param {number} spent @param {number} limit @param {string} text @param {boolean} [ends] whether the limit is a danger */
export function meter(spent, limit, text, ends = true) {
  const part = Math.min(spent / Math.max(limit, 1e-9), 1);
  return h("div", null, text, svg("svg", { class: "meter", viewBox: "0 0 100 4", preserveAspectRatio: "none", role: "img", "aria-label": percent(part) }, svg("rect", { class: "ground", x: 0, y: 0, width: 100, height: 4 }), svg("rect", { class: part >= 1 && ends ? "hue-bad" : "hue-0", x: 0, y: 0, width: part * 100, height: 4 })));
}
