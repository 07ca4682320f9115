// Small parts that many screens are made of: buttons that act, cards, tabs, lists of facts, and pages of a list.

import { get } from "./api.js";
import { freshId, h, words } from "./dom.js";
import { fail } from "./notice.js";
import { link } from "./router.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * A button whose failure is shown at the top of `place`, with its remedy. It cannot be pressed twice at once.
 * @param {Element} place
 * @param {Child} label
 * @param {() => unknown} act
 * @param {{class?: string, label?: string}} [look] `label` names it for screen readers
 */
export function action(place, label, act, look = {}) {
  const made = h("button", { type: "button", class: look.class, "aria-label": look.label, on: { click: async () => {
    made.disabled = true;
    try {
      await act();
    } catch (error) {
      fail(place, error);
    } finally {
      made.disabled = false;
    }
  } } }, label);
  return made;
}

/** @param {Child} title @param {...Child} content */
export function card(title, ...content) {
  return h("section", { class: "card" }, h("h2", null, title), ...content);
}

/** @param {[string, Child][]} rows */
export function factList(rows) {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/**
 * Links to the parts of a screen.
 * @param {string} label
 * @param {string[]} base the address before the name of the part
 * @param {[string, string][]} parts name in the address, and title
 * @param {string} current
 */
export function tabs(label, base, parts, current) {
  return h("nav", { class: "tabs", "aria-label": label }, parts.map(([name, title]) => h("a", { href: link([...base, name]), "aria-current": name === current ? "page" : null }, title)));
}

/**
 * A choice among a few values, with its label.
 * @param {string} label
 * @param {string[][]} options value and text
 * @param {string} value the chosen one
 * @param {(value: string) => void} changed
 */
export function choice(label, options, value, changed) {
  const id = freshId("choice");
  const select = h("select", { id, on: { change: () => changed(select.value) } }, options.map(([each, text]) => h("option", { value: each, selected: each === value }, text)));
  return h("div", { class: "field" }, h("label", { for: id }, label), select);
}

/** Tags of few words. @param {unknown[] | null | undefined} all */
export function tagList(all) {
  return (all ?? []).slice(0, 12).map((each) => [h("span", { class: "tag" }, words(each)), " "]);
}

/**
 * One page of a list whose cursor is the id of its last row, for `pagedTable`.
 * @param {string} path
 * @param {import("./api.js").Query} query
 * @param {number} limit
 * @param {string} [key] the field that is the cursor
 * @param {string} [cursor] the name of the parameter
 * @returns {(after: string | null, signal: AbortSignal) => Promise<{rows: any[], next: string | null}>}
 */
export function pagesOf(path, query, limit, key = "id", cursor = "after") {
  return async (after, signal) => {
    const rows = await get(path, { ...query, limit, [cursor]: after }, signal);
    return { rows, next: rows.length === limit ? String(rows[rows.length - 1][key]) : null };
  };
}

/**
 * One page of a list that is counted by an offset.
 * @param {string} path
 * @param {import("./api.js").Query} query
 * @param {number} limit
 * @returns {(offset: number | null, signal: AbortSignal) => Promise<{rows: any[], next: number | null}>}
 */
export function offsetsOf(path, query, limit) {
  return async (offset, signal) => {
    const rows = await get(path, { ...query, limit, offset: offset ?? 0 }, signal);
    return { rows, next: rows.length === limit ? (offset ?? 0) + limit : null };
  };
}

/** @type {Map<string, Promise<string>>} */
const names = new Map();
const NAMES_MAX = 500;

/** The name of an agent as a link, read once. @param {string} id @param {string} [screen] @param {string} [known] its name */
export function agentLink(id, screen = "chat", known) {
  const shown = h("a", { href: link([screen, id]) }, known ? words(known) : id);
  if (!known) {
    if (names.size > NAMES_MAX) names.clear();
    if (!names.has(id)) names.set(id, get(`v1/agents/${id}`, { include: "agent.tags" }).then((found) => String(found.name)));
    names.get(id)?.then((name) => shown.replaceChildren(words(name)), () => names.delete(id));
  }
  return shown;
}

/** A value that JSON has, from what a person typed. Raises RangeError. @param {unknown} text */
export function parsedJson(text) {
  try {
    return JSON.parse(String(text));
  } catch {
    throw new RangeError("This is not JSON. Write texts in double quotes, such as \"tea\".");
  }
}
