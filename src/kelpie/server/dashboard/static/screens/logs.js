// The live log of the server, for the operator.

import { get } from "../core/api.js";
import { freshId, h, replace, visible } from "../core/dom.js";
import { clock, count, moment } from "../core/format.js";
import { action, filters, head, hint, side } from "../core/parts.js";
import { keep, link } from "../core/router.js";
import { Screen } from "../core/screen.js";

const SHOWN_MAX = 1000;
const EVERY_MS = 1500;
const LEVELS = ["debug", "info", "warning", "error"];
const PAUSE_MS = 250;
const HEAD = new Set(["time", "level", "component", "event", "code", "exception"]);

export default class LogsScreen extends Screen {
  #last = 0;
  #held = false;
  #asked = 0;
  #box = h("div", { class: "log", role: "log", tabindex: "0", "aria-label": "Log" });
  #total = h("span", { class: "hint" });

  async show() {
    const chosen = { level: this.route.query.get("level") ?? "debug", contains: this.route.query.get("contains") ?? "" };
    const [levelId, textId] = [freshId("level"), freshId("contains")];
    let timer = 0;
    const apply = () => {
      keep(chosen);
      this.#last = 0;
      void this.attempt(() => this.#load(chosen, true));
    };
    const level = h("select", { id: levelId, on: { change: () => { chosen.level = level.value; apply(); } } }, LEVELS.map((each) => h("option", { value: each, selected: each === chosen.level }, each === "error" ? "error" : `${each} and graver`)));
    const text = h("input", { id: textId, type: "search", value: chosen.contains, placeholder: "Word, agent, run or request", on: { input: () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => { chosen.contains = text.value.trim(); apply(); }, PAUSE_MS);
    } } });
    const hold = action(this, "Pause", () => {
      this.#held = !this.#held;
      replace(hold, this.#held ? "Continue" : "Pause");
    });
    replace(this, head("Logs", side(this.#total, hold)), filters(h("div", { class: "field" }, h("label", { for: levelId }, "Level"), level), h("div", { class: "field wide" }, h("label", { for: textId }, "Only lines with"), text)), this.#box);
    this.repeat(() => (this.#held ? null : this.#load(chosen, false)), EVERY_MS);
    this.onReturn(() => this.#load(chosen, true));
    await this.#load(chosen, true);
  }

  /** @param {{level: string, contains: string}} chosen @param {boolean} anew */
  async #load(chosen, anew) {
    const mine = (this.#asked += 1);
    const told = await get("v1/kelpie/logs", { after: anew ? 0 : this.#last, level: chosen.level, contains: chosen.contains, limit: SHOWN_MAX }, this.signal);
    if (mine !== this.#asked) return;
    const restarted = told.last < this.#last;
    this.#last = told.last;
    const box = this.#box;
    const follows = anew || box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    if (anew || restarted) replace(box);
    for (const each of told.lines) box.append(lineOf(each.line));
    while (box.childElementCount > SHOWN_MAX) box.firstElementChild?.remove();
    if (anew && !told.lines.length) box.append(h("div", { class: "log-line hint" }, "No lines match. Lines since the start of the server are kept, at most 2,000 lines. The command kelpie logs has older ones."));
    replace(this.#total, count(box.querySelectorAll(".log-line:not(.hint)").length, "line"));
    if (follows) box.scrollTop = box.scrollHeight;
  }
}

/** @param {any} line */
function lineOf(line) {
  const facts = Object.entries(line).filter(([name]) => !HEAD.has(name)).map(([name, value]) => (name === "run_id" ? [" ", h("a", { href: link(["runs", String(value)]) }, `run_id=${value}`)] : ` ${name}=${visible(typeof value === "string" ? value : JSON.stringify(value))}`));
  return h("div", { class: `log-line ${line.level}` }, h("time", { datetime: line.time, title: moment(line.time) }, clock(line.time)), ` ${String(line.level).padEnd(7)} ${line.component ?? ""} `, h("bdi", null, visible(String(line.event ?? ""))), line.code && hint(` [${line.code}]`), facts, line.exception && h("div", null, visible(String(line.exception))));
}

customElements.define("kelpie-logs", LogsScreen);
