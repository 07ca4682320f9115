// The live log of the server, for the operator: a stream that the server filters and that goes on after a lost connection.

import {
  action, ApiError, choice, clock, connection, count, filters, h, head, hint, keep, linkTo, moment, replace, Screen,
  searchField, stream, visible,
} from "../core/index.js";

const SHOWN_MAX = 1000;
const LEVELS = [["debug", "debug and graver"], ["info", "info and graver"], ["warning", "warning and graver"], ["error", "error"]];
const HEAD = new Set(["time", "level", "component", "event", "code", "exception"]);
const NONE = "No lines match. New ones appear by themselves. The server keeps its last 2,000 lines since it started; the command kelpie logs has older ones.";

export default class LogsScreen extends Screen {
  #held = false;
  #drawing = 0;
  /** @type {any[]} lines that are not drawn yet, at most SHOWN_MAX */
  #waiting = [];
  #reader = new AbortController();
  #box = h("div", { class: "log", role: "log", tabindex: "0", "aria-label": "Log" });
  #total = h("span", { class: "hint" });

  show() {
    const chosen = { level: this.route.query.get("level") ?? "debug", contains: this.asked("contains") };
    const apply = () => {
      keep(chosen);
      void this.attempt(() => this.#follow(chosen));
    };
    const hold = action(this, "Pause", () => {
      this.#held = !this.#held;
      replace(hold, this.#held ? "Continue" : "Pause");
      this.#draw();
    });
    replace(this, head("Logs", this.#total, hold), filters(choice("Level", LEVELS, chosen.level, (level) => { chosen.level = level; apply(); }), searchField("Only lines with", chosen.contains, (text) => { chosen.contains = text; apply(); }, "Word, agent, run or request", "wide")), this.#box);
    return this.#follow(chosen);
  }

  /** Reads the log until the screen is left or other lines are wanted. @param {{level: string, contains: string}} chosen */
  async #follow(chosen) {
    this.#reader.abort();
    this.#reader = new AbortController();
    const signal = AbortSignal.any([this.#reader.signal, this.signal]);
    this.#waiting = [];
    replace(this.#box);
    this.#draw();
    let after = "";
    while (!signal.aborted) {
      try {
        await stream("v1/kelpie/logs/stream", undefined, (frame, id) => {
          after = id || after;
          if (!signal.aborted) this.#take(frame);
        }, signal, { ...chosen, limit: SHOWN_MAX, after });
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof ApiError) || (error.status > 0 && error.status < 500 && error.status !== 429)) throw error;
      }
      connection.lost();
      await connection.back(signal).catch(() => null); // the screen was left
    }
  }

  /** @param {any} frame */
  #take(frame) {
    this.#waiting.push(frame);
    if (this.#waiting.length > SHOWN_MAX) this.#waiting.shift();
    this.#drawing ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#drawing = 0;
    if (this.#held) return;
    const box = this.#box;
    const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    if (this.#waiting.length) box.querySelector(".none")?.remove();
    box.append(...this.#waiting.map((each) => (each.line ? lineOf(each.line) : h("div", { class: "log-line hint" }, `${count(each.skipped, "line")} came too fast to be shown.`))));
    this.#waiting = [];
    while (box.childElementCount > SHOWN_MAX) box.firstElementChild?.remove();
    if (!box.firstChild) box.append(h("div", { class: "log-line hint none" }, NONE));
    replace(this.#total, count(box.querySelectorAll(".log-line:not(.hint)").length, "line"));
    if (follows) box.scrollTop = box.scrollHeight;
  }
}

/** @param {any} line */
function lineOf(line) {
  const facts = Object.entries(line).filter(([name, value]) => !HEAD.has(name) && value !== null).map(([name, value]) => (name === "run_id" ? [" ", linkTo(["runs", String(value)], `run_id=${value}`)] : ` ${name}=${visible(typeof value === "string" ? value : JSON.stringify(value))}`));
  return h("div", { class: `log-line ${line.level}` }, h("time", { datetime: line.time, title: moment(line.time) }, clock(line.time)), ` ${String(line.level).padEnd(7)} ${line.component ?? ""} `, h("bdi", null, visible(String(line.event ?? ""))), line.code && hint(` [${line.code}]`), facts, line.exception && h("div", null, visible(String(line.exception))));
}

customElements.define("kelpie-logs", LogsScreen);
