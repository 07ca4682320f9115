// A table whose pages come from the server. The page never holds more than one page of rows, however long the list is.

import { h, replace } from "./dom.js";
import { number } from "./format.js";
import { empty, fail } from "./notice.js";

/**
 * The label of a column, what a cell of it shows, and how it looks: "num" is set to the right; "short" never wraps;
 * "text" is cut after two lines; "actions" holds buttons. The first column is the link of its row.
 * @typedef {[label: string, cell: (row: any, place: number) => import("./dom.js").Child, look?: string]} Column
 */

/**
 * @typedef {object} PagedOptions
 * @property {string} label what the rows are, for screen readers: "Agents"
 * @property {Column[]} columns
 * @property {(cursor: any, signal: AbortSignal) => Promise<{rows: any[], next: any}>} load
 * @property {import("./dom.js").Child} [none] shown when there are no rows
 * @property {(row: any) => string | null} [link] address that a row opens
 */

/** A table that scrolls by itself. @param {string} label @param {Column[]} columns @param {any[]} rows */
export function scrolledTable(label, columns, rows) {
  const body = h("tbody", null, rows.map((row, place) => rowOf(columns, row, place, null)));
  const head = h("tr", null, columns.map(([name, , look]) => h("th", { scope: "col", class: look }, name)));
  const table = h("table", { class: "list" }, h("caption", { class: "hidden" }, label), h("thead", null, head), body);
  return h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": label }, table);
}

/** @param {Column[]} columns @param {any} row @param {number} place @param {string | null} address */
function rowOf(columns, row, place, address) {
  const cells = columns.map(([label, cell, look], which) => {
    const shown = cell(row, place);
    return h("td", { class: look, "data-label": label }, address && which === 0 ? h("a", { href: address }, shown) : look === "text" ? h("div", { class: "clamp" }, shown) : shown);
  });
  for (const each of cells) if (!each.textContent && !each.querySelector("input")) each.classList.add("none");
  return h("tr", null, cells);
}

/**
 * A table of the screen, which reads it again when the server is back.
 * @param {import("./screen.js").Screen} screen
 * @param {PagedOptions} options
 * @returns {{node: HTMLElement, reload: () => Promise<void>, restart: () => Promise<void>}}
 */
export function pagedTable(screen, options) {
  /** @type {any[]} where each page begins */
  let cursors = [null];
  /** @type {any} */
  let next = null;
  let shown = 0;
  let latest = new AbortController();
  const none = h("div");
  const where = h("span", { class: "where", "aria-live": "polite" });
  const back = h("button", { type: "button", on: { click: () => void turn(-1) } }, "Previous page");
  const forth = h("button", { type: "button", on: { click: () => void turn(1) } }, "Next page");
  const foot = h("div", { class: "pager", hidden: true }, back, where, forth);
  const scroller = scrolledTable(options.label, options.columns, []);
  const body = /** @type {HTMLElement} */ (scroller.querySelector("tbody"));
  const node = h("div", { class: "paged" }, scroller, none, foot);
  screen.onReturn(() => reload());

  /** @param {number} step */
  async function turn(step) {
    if (step > 0 && next !== null) cursors = [...cursors, next];
    if (step < 0) cursors = cursors.slice(0, -1);
    try {
      await reload();
      scroller.focus();
    } catch (error) {
      fail(node, error);
    }
  }

  async function reload() {
    latest.abort();
    const mine = (latest = new AbortController());
    const signal = AbortSignal.any([mine.signal, screen.signal]);
    node.setAttribute("aria-busy", "true");
    try {
      const page = await options.load(cursors[cursors.length - 1] ?? null, signal);
      if (signal.aborted) return;
      next = page.next;
      shown = page.rows.length;
      draw(page.rows);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      if (mine === latest) node.removeAttribute("aria-busy");
    }
  }

  /** @param {any[]} rows */
  function draw(rows) {
    node.querySelector(":scope > .failure")?.remove();
    replace(body, rows.map((row, place) => rowOf(options.columns, row, place, options.link?.(row) ?? null)));
    scroller.hidden = rows.length === 0 && cursors.length === 1;
    replace(none, scroller.hidden && (options.none ?? empty(`No ${options.label.toLowerCase()}.`)));
    foot.hidden = cursors.length === 1 && next === null;
    back.disabled = cursors.length === 1;
    forth.disabled = next === null;
    replace(where, `Page ${number(cursors.length)}, ${number(shown)} rows`);
  }

  return {
    node,
    reload,
    restart: async () => {
      cursors = [null];
      await reload();
    },
  };
}
