// Text of any length: a megabyte is cut, and the rest comes when a person asks for it, in pieces the browser can skip.

import { h, replace, visible } from "./dom.js";
import { bytes } from "./format.js";

const SHOWN_CHARS = 20_000;
const PIECE_CHARS = 20_000;
const WHOLE_CHARS_MAX = 5_000_000;

/** JSON as people read it; a text that is no JSON as it is. @param {unknown} value */
export function prettyJson(value) {
  try {
    return JSON.stringify(typeof value === "string" ? JSON.parse(value) : value, null, 2);
  } catch {
    return String(value); // not whole yet, or broken by the model
  }
}

/** What a program printed; null for nothing. @param {string} label @param {unknown} lines */
export function printed(label, lines) {
  const text = Array.isArray(lines) ? lines.join("\n") : String(lines ?? "");
  return text.trim() ? [h("p", { class: "part-label" }, label), longText(text, { label })] : null;
}

/**
 * A text as it is, with line breaks.
 * @param {unknown} value
 * @param {{shown?: number, label?: string}} [options]
 */
export function longText(value, { shown = SHOWN_CHARS, label = "Text" } = {}) {
  const text = visible(typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? ""));
  const box = h("pre", { tabindex: "0", dir: "auto", role: "region", "aria-label": label }, text.slice(0, shown));
  if (text.length <= shown) return box;
  const whole = h("div", { class: "long" }, box);
  const button = h("button", { type: "button", on: { click: () => {
    replace(box);
    const end = Math.min(text.length, WHOLE_CHARS_MAX);
    for (let at = 0; at < end; at += PIECE_CHARS) box.append(h("span", { class: "piece" }, text.slice(at, at + PIECE_CHARS)));
    button.remove();
    box.focus();
  } } }, `Show all ${bytes(text.length)}`);
  whole.append(button);
  return whole;
}
