// Keys: single ones ("n") and sequences ("g a"). They do nothing while a person types, except Escape and those with Ctrl.

import { h } from "./dom.js";
import { openDialog } from "./dialog.js";

/** @typedef {{keys: string, label: string, run: () => void}} Shortcut */

/** @type {Shortcut[]} */
const known = [];
let begun = "";
let timer = 0;
const PAUSE_MS = 1200;

/**
 * @param {string} keys such as "n", "g a" or "Ctrl+Enter"
 * @param {string} label what it does, for the help
 * @param {() => void} run
 * @param {AbortSignal} [signal] removes it
 */
export function shortcut(keys, label, run, signal) {
  const made = { keys, label, run };
  known.unshift(made);
  signal?.addEventListener("abort", () => known.splice(known.indexOf(made), 1), { once: true });
}

/** Listens to the keyboard; called once. */
export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const name = `${event.ctrlKey ? "Ctrl+" : ""}${event.key}`;
    if (isTyping(event.target) && !event.ctrlKey && event.key !== "Escape") return;
    const typed = begun ? `${begun} ${name}` : name;
    begun = "";
    clearTimeout(timer);
    const found = known.find((each) => each.keys === typed) ?? known.find((each) => each.keys === name);
    if (found) {
      event.preventDefault();
      found.run();
    } else if (known.some((each) => each.keys.startsWith(`${typed} `))) {
      begun = typed;
      timer = window.setTimeout(() => (begun = ""), PAUSE_MS);
    }
  });
  shortcut("?", "Show this help", help);
}

/** Shows all keys that work here. */
export function help() {
  const rows = known.map((each) =>
    h("tr", null, h("td", null, each.keys.split(" ").map((key) => [h("kbd", null, key), " "])), h("td", null, each.label)),
  );
  openDialog("Keyboard shortcuts", h("table", { class: "keys" }, h("tbody", null, rows)));
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
