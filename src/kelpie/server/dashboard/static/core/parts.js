// Small parts that many screens are made of: heads, buttons that act, cards, tabs, fields of filters, lists of facts,
// and pages of a list.

import { get, remove } from "./api.js";
import { confirm } from "./dialog.js";
import { h, labelled, optionsOf, words } from "./dom.js";
import { fail, say } from "./notice.js";
import { link } from "./router.js";

/** @import { Child } from "./dom.js" */

const PAGE = 50; // rows of a list

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

/**
 * A button that deletes something after a person has confirmed it.
 * @param {Element} place where a failure is shown
 * @param {string} what "file"
 * @param {Child} text what is lost
 * @param {string} path
 * @param {() => unknown} then
 * @param {{label?: string, query?: import("./api.js").Query}} [more] `label` names the button for screen readers
 */
export function deleteButton(place, what, text, path, then, more = {}) {
  return action(place, "Delete", async () => {
    if (!(await confirm(`Delete ${what}`, h("span", null, text, " It cannot be undone."), `Delete ${what}`, () => remove(path, { query: more.query })))) return;
    say(`Deleted the ${what}`);
    await then();
  }, { class: "danger", label: more.label });
}

/** Words between commas. @param {unknown} text */
export const listOfWords = (text) => String(text ?? "").split(",").map((each) => each.trim()).filter(Boolean);

/** The top of a screen: its title, and what stands beside it. @param {Child} title @param {...Child} beside */
export function head(title, ...beside) {
  return h("div", { class: "head" }, h("h1", null, title), beside.length > 0 && side(...beside));
}

/** The top of a part: what it is, and what can be done. @param {Child} about @param {...Child} actions */
export const partHead = (about, ...actions) => h("div", { class: "head" }, typeof about === "string" ? note(about) : about, side(...actions));

/** A link to a place of the dashboard. @param {string[]} path @param {Child} label @param {import("./dom.js").Props} [more] */
export const linkTo = (path, label, more = {}) => h("a", { href: link(path), ...more }, label);

/** @param {Child} label @param {() => unknown} click @param {string} [look] a class */
export const button = (label, click, look) => h("button", { type: "button", class: look, on: { click } }, label);

/** A name or an id, as programs write it. @param {unknown} text */
export const code = (text) => h("code", null, words(text));

/** Things side by side. @param {...Child} content */
export const side = (...content) => h("div", { class: "row" }, content);

/** Words that matter less. @param {...Child} content */
export const hint = (...content) => h("span", { class: "hint" }, content);

/** A sentence that explains. @param {...Child} content */
export const note = (...content) => h("p", { class: "hint" }, content);

/** @param {Child} content @param {string} [tone] "good", "warn" or "bad" */
export const tag = (content, tone = "") => h("span", { class: `tag ${tone}` }, content);

/** @param {...Child} fields */
export const filters = (...fields) => h("div", { class: "filters", role: "group", "aria-label": "Filters" }, fields);

/**
 * A field to choose one of a few.
 * @param {string} label
 * @param {string[][]} options each its value and its words
 * @param {string | undefined} chosen
 * @param {(value: string) => void} changed
 */
export function choice(label, options, chosen, changed) {
  const select = h("select", { on: { change: () => changed(select.value) } }, optionsOf(options, chosen));
  return labelled(label, select);
}

const PAUSE_MS = 200; // between the last key and the search

/**
 * A field of a filter. `changed` is called a moment after the last key.
 * @param {string} label
 * @param {string} chosen
 * @param {(text: string) => void} changed
 * @param {string} [placeholder]
 * @param {string} [look] a class
 */
export function searchField(label, chosen, changed, placeholder, look) {
  let timer = 0;
  const input = h("input", { type: "search", value: chosen, placeholder, on: { input: () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => changed(input.value.trim()), PAUSE_MS);
  } } });
  return labelled(label, input, look);
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

/** Tags of few words. @param {unknown[] | null | undefined} all */
export function tagList(all) {
  return (all ?? []).slice(0, 12).map((each) => [h("span", { class: "tag" }, words(each)), " "]);
}

/**
 * One page of a list whose cursor is the id of its last row, for `pagedTable`.
 * @param {string} path
 * @param {import("./api.js").Query | (() => import("./api.js").Query)} [query]
 * @param {{limit?: number, key?: string, cursor?: string}} [more] `key` is the field that is the cursor, `cursor` the parameter
 * @returns {(after: string | null, signal: AbortSignal) => Promise<{rows: any[], next: string | null}>}
 */
export function pagesOf(path, query = {}, { limit = PAGE, key = "id", cursor = "after" } = {}) {
  return async (after, signal) => {
    const rows = await get(path, { ...(typeof query === "function" ? query() : query), limit, [cursor]: after }, signal);
    return { rows, next: rows.length === limit ? String(rows[rows.length - 1][key]) : null };
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
