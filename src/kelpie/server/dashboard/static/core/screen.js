// The base of all screens. A screen is a custom element that the shell makes for a route and removes afterwards; what it
// started ends with it, through `signal`.

import { ApiError, get } from "./api.js";
import { connection } from "./connection.js";
import { h, replace } from "./dom.js";
import { failure } from "./notice.js";

/** @import { Route } from "./router.js" */

export class Screen extends HTMLElement {
  /** @type {Route} */
  route = { path: [], query: new URLSearchParams() };
  #life = new AbortController();

  /** Aborted when the screen is left. */
  get signal() {
    return this.#life.signal;
  }

  connectedCallback() {
    this.#life = new AbortController();
    this.classList.add("screen");
    void this.attempt(() => this.show());
  }

  disconnectedCallback() {
    this.#life.abort(new DOMException("The screen was left.", "AbortError"));
  }

  /** Builds the screen. Screens override it. @returns {void | Promise<void>} */
  show() {}

  /** The same screen for another route, without making it anew; return false to be made anew. @param {Route} route @returns {boolean} */
  moved(route) {
    void route;
    return false;
  }

  /** What the server answers to a reader of this screen. @param {string} path @param {import("./api.js").Query} [query] */
  get(path, query) {
    return get(path, query, this.signal);
  }

  /** An agent without its memory and tools. @param {string} id */
  agent(id) {
    return this.get(`v1/agents/${id}`, { include: "agent.tags" });
  }

  /** A part of the query in the address, such as a filter. @param {string} name */
  asked(name) {
    return this.route.query.get(name) ?? "";
  }

  /** The title of the window. @param {string} text */
  windowTitle(text) {
    document.title = `${text} · Kelpie`;
  }

  /**
   * Runs `work`; a failure is shown inside the screen with its remedy. What failed because the server was away is done
   * again when it is back.
   * @param {() => unknown} work
   */
  async attempt(work) {
    try {
      await work();
    } catch (error) {
      if (this.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      const again = () => void this.attempt(work);
      if (error.unreachable) connection.addEventListener("back", again, { once: true, signal: this.signal });
      if (!this.firstChild) replace(this, h("h1", null, "This cannot be shown"), failure(error, again));
      else if (!error.unreachable) this.append(failure(error, again)); // the banner says so, and it is tried again
    }
  }

  /** Calls `work` when the server is back after it could not be reached. @param {() => unknown} work */
  onReturn(work) {
    connection.addEventListener("back", () => void this.attempt(work), { signal: this.signal });
  }

  /**
   * Calls `work` now and then, while the page is visible and the server answers; not again before the last one ended.
   * @param {() => unknown} work
   * @param {number} everyMs
   */
  repeat(work, everyMs) {
    let busy = false;
    const timer = window.setInterval(async () => {
      if (busy || document.hidden || !connection.online) return;
      busy = true;
      try {
        await work();
      } catch (error) {
        if (!this.signal.aborted && !(error instanceof ApiError)) throw error; // an ApiError is tried again soon
      } finally {
        busy = false;
      }
    }, everyMs);
    this.signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  }
}
