// The difference between two texts, line by line (Myers), bounded: texts that differ in too many lines are shown whole.

import { h, visible } from "./dom.js";

const EDITS_MAX = 1500;
const LINES_MAX = 20_000;
const AROUND = 3;

/** @typedef {{sign: " " | "+" | "-", text: string}} Change */

/** @param {string} before @param {string} after @returns {Change[]} */
export function difference(before, after) {
  const a = before.split("\n").slice(0, LINES_MAX);
  const b = after.split("\n").slice(0, LINES_MAX);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const middle = shortest(a.slice(start, a.length - end), b.slice(start, b.length - end));
  /** @param {string} text @returns {Change} */
  const same = (text) => ({ sign: " ", text });
  return [...a.slice(0, start).map(same), ...middle, ...a.slice(a.length - end, a.length).map(same)];
}

/**
 * The changes as a list; long parts that are the same are folded.
 * @param {string} before
 * @param {string} after
 */
export function diffView(before, after) {
  const changes = difference(before, after);
  const changed = changes.filter((each) => each.sign !== " ").length;
  if (changed === 0) return h("p", { class: "hint" }, "No difference.");
  const near = new Array(changes.length).fill(false);
  changes.forEach((each, place) => {
    if (each.sign === " ") return;
    for (let at = Math.max(0, place - AROUND); at <= Math.min(changes.length - 1, place + AROUND); at += 1) near[at] = true;
  });
  /** @type {Node[]} */
  const rows = [];
  for (let at = 0; at < changes.length; at += 1) {
    const each = changes[at];
    if (!each) continue;
    if (near[at]) {
      const kind = each.sign === "+" ? "added" : each.sign === "-" ? "removed" : "same";
      const spoken = each.sign === "+" ? "added: " : each.sign === "-" ? "removed: " : "";
      rows.push(h("div", { class: `diff-line ${kind}` }, h("span", { class: "sign", "aria-hidden": "true" }, each.sign), h("span", { class: "hidden" }, spoken), h("bdi", { dir: "auto" }, visible(each.text) || " ")));
    } else {
      let end = at;
      while (end < changes.length && !near[end]) end += 1;
      rows.push(h("div", { class: "diff-fold" }, `${end - at} unchanged lines`));
      at = end - 1;
    }
  }
  return h("div", { class: "diff", tabindex: "0", role: "group", "aria-label": "Difference" }, rows);
}

/** @param {string[]} a @param {string[]} b @returns {Change[]} */
function shortest(a, b) {
  const whole = () => [...a.map((text) => ({ sign: /** @type {const} */ ("-"), text })), ...b.map((text) => ({ sign: /** @type {const} */ ("+"), text }))];
  if (a.length === 0 || b.length === 0) return whole();
  const max = Math.min(a.length + b.length, EDITS_MAX);
  /** @type {Map<number, number>[]} */
  const trace = [];
  let best = new Map([[1, 0]]);
  for (let d = 0; d <= max; d += 1) {
    trace.push(new Map(best));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && (best.get(k - 1) ?? -1) < (best.get(k + 1) ?? -1));
      let x = down ? (best.get(k + 1) ?? 0) : (best.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      best.set(k, x);
      if (x >= a.length && x - k >= b.length) return backwards(a, b, trace, d);
    }
  }
  return whole();
}

/** @param {string[]} a @param {string[]} b @param {Map<number, number>[]} trace @param {number} last @returns {Change[]} */
function backwards(a, b, trace, last) {
  /** @type {Change[]} */
  const made = [];
  let x = a.length;
  let y = b.length;
  for (let d = last; d >= 0; d -= 1) {
    const best = trace[d] ?? new Map();
    const k = x - y;
    const down = k === -d || (k !== d && (best.get(k - 1) ?? -1) < (best.get(k + 1) ?? -1));
    const before = down ? k + 1 : k - 1;
    const fromX = best.get(before) ?? 0;
    const fromY = fromX - before;
    while (x > fromX && y > fromY && x > 0 && y > 0) {
      x -= 1;
      y -= 1;
      made.push({ sign: " ", text: a[x] ?? "" });
    }
    if (d > 0) {
      if (down) {
        y -= 1;
        made.push({ sign: "+", text: b[y] ?? "" });
      } else {
        x -= 1;
        made.push({ sign: "-", text: a[x] ?? "" });
      }
    }
  }
  return made.reverse();
}
