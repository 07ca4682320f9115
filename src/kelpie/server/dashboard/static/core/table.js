// A table whose pages come from the server. The page never holds more than one page of rows, however long the list is.

import { h, replace } from "./dom.js";
import { number } from "./format.js";
import { empty, fail } from "./notice.js";

/**
 * @template R
 * @typedef {object} Column
 * @property {string} label
 * @property {(row: R) => import("./dom.js").Child} cell
 * @property {string} [class] "num" is set to the right
 * @property {boolean} [plain] whether it stays out of the link of its row, as a box that selects it
 */

/**
 * @template R, C
 * @typedef {object} PagedOptions
 * @property {string} label what the rows are, for screen readers: "Agents"
 * @property {Column<R>[]} columns
 * @property {(cursor: C | null, signal: AbortSignal) => Promise<{rows: R[], next: C | null}>} load
 * @property {import("./dom.js").Child} [none] shown when there are no rows
 * @property {(row: R) => string | null} [link] address that a row opens
 * @property {AbortSignal} signal ends with the screen
 */

/**
 * @template R, C
 * @param {PagedOptions<R, C>} options
 * @returns {{node: HTMLElement, reload: () => Promise<void>, restart: () => Promise<void>}}
 */
export function pagedTable(options) {
  /** @type {(C | null)[]} */
  let cursors = [null];
  /** @type {C | null} */
  let next = null;
  let shown = 0;
  let latest = new AbortController();
  const body = h("tbody");
  const head = h("thead", null, h("tr", null, options.columns.map((each) => h("th", { scope: "col", class: each.class }, each.label))));
  const table = h("table", { class: "list" }, h("caption", { class: "hidden" }, options.label), head, body);
  const none = h("div");
  const where = h("span", { class: "where", "aria-live": "polite" });
  const back = h("button", { type: "button", on: { click: () => void turn(-1) } }, "Previous page");
  const forth = h("button", { type: "button", on: { click: () => void turn(1) } }, "Next page");
  const foot = h("div", { class: "pager", hidden: true }, back, where, forth);
  const scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": options.label }, table);
  const node = h("div", { class: "paged" }, scroller, none, foot);

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
    const signal = AbortSignal.any([mine.signal, options.signal]);
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

  /** @param {R[]} rows */
  function draw(rows) {
    node.querySelector(":scope > .failure")?.remove();
    replace(body, rows.map(rowOf));
    scroller.hidden = rows.length === 0 && cursors.length === 1;
    replace(none, scroller.hidden && (options.none ?? empty(`No ${options.label.toLowerCase()}.`)));
    foot.hidden = cursors.length === 1 && next === null;
    back.disabled = cursors.length === 1;
    forth.disabled = next === null;
    replace(where, `Page ${number(cursors.length)}, ${number(shown)} rows`);
  }

  /** @param {R} row */
  function rowOf(row) {
    const address = options.link?.(row) ?? null;
    const linked = options.columns.find((each) => !each.plain);
    const cells = options.columns.map((each) =>
      h("td", { class: each.class, "data-label": each.label }, each === linked && address ? h("a", { href: address }, each.cell(row)) : each.cell(row)),
    );
    return h("tr", null, cells);
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
