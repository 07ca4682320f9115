// Usage and cost per day, model and agent; and budgets.

import {
  action, agentField, agentLink, ago, ask, card, choice, columns, cost, count, empty, filters, h, head, keep, link,
  meter, note, number, pagedTable, pagesOf, partsBar, patch, percent, replace, say, Screen, scrolledTable, side, tag,
  tokens, words,
} from "../core/index.js";
import { askBudget } from "./budget_form.js";

const SHOWN = 50;
const PERIODS = [["7", "Last 7 days"], ["30", "Last 30 days"], ["90", "Last 90 days"], ["365", "Last 365 days"]];
const DAY_MS = 86_400_000;

export default class UsageScreen extends Screen {
  async show() {
    const chosen = { days: this.route.query.get("days") ?? "30", agent: this.asked("agent"), measure: this.route.query.get("measure") ?? "usd" };
    const agent = chosen.agent ? await this.agent(chosen.agent) : null;
    const shown = h("div", { class: "screen" });
    const apply = () => {
      keep(chosen);
      void this.attempt(() => this.#sums(shown, chosen));
    };
    /** @param {"days" | "measure"} name @param {string} label @param {string[][]} options */
    const field = (name, label, options) => choice(label, options, chosen[name], (value) => { chosen[name] = value; apply(); });
    const budgets = this.#budgets();
    replace(
      this,
      head("Usage and cost"),
      filters(field("days", "Period", PERIODS), agentField(agent, (found) => { chosen.agent = found?.id ?? ""; apply(); }, this.signal), field("measure", "Chart", [["usd", "Cost"], ["tokens", "Tokens"]])),
      shown,
      card("Budgets", note("An agent whose budget is used up answers no messages until the period ends or the budget is raised."), side(action(this, "New budget", async () => this.#newBudget(() => budgets.restart()))), budgets.node),
    );
    this.onReturn(() => this.#sums(shown, chosen));
    await Promise.all([this.#sums(shown, chosen), budgets.reload()]);
  }

  /** @param {Element} place @param {{days: string, agent: string, measure: string}} chosen */
  async #sums(place, chosen) {
    const query = { days: chosen.days, agent_id: chosen.agent, utc_offset_minutes: -new Date().getTimezoneOffset() };
    const [days, models, agents] = await Promise.all([this.get("v1/kelpie/spending", { ...query, by: "day" }), this.get("v1/kelpie/spending", { ...query, by: "model", limit: SHOWN }), this.get("v1/kelpie/spending", { ...query, by: "agent", limit: SHOWN })]);
    const total = days.reduce((/** @type {any} */ sum, /** @type {any} */ each) => ({ usd: sum.usd + each.usd, tokens: sum.tokens + each.tokens, steps: sum.steps + each.steps, unpriced_calls: sum.unpriced_calls + each.unpriced_calls }), { usd: 0, tokens: 0, steps: 0, unpriced_calls: 0 });
    if (days.length === 0) {
      replace(place, empty("Nothing was used in this period.", "Every step of an agent is counted here, with its tokens and its cost."));
      return;
    }
    const money = chosen.measure !== "tokens";
    /** @param {any} each */
    const value = (each) => (money ? each.usd : each.tokens);
    const known = new Map(days.map((/** @type {any} */ each) => [each.day, value(each)]));
    const series = Array.from({ length: Number(chosen.days) }, (_, place) => {
      const day = localDay(new Date(Date.now() - (Number(chosen.days) - 1 - place) * DAY_MS));
      return { label: day, value: Number(known.get(day) ?? 0) };
    });
    const parts = models.filter((/** @type {any} */ each) => value(each) > 0).slice(0, 8).map((/** @type {any} */ each) => ({ label: each.model ?? "unknown model", value: money ? Math.round(each.usd * 1e6) / 1e6 : each.tokens }));
    replace(
      place,
      h("div", { class: "cards" }, big("Cost", cost(total.usd), total.unpriced_calls ? `${count(total.unpriced_calls, "call")} of unknown price` : "all prices are known"), big("Tokens", number(total.tokens), "prompts and answers"), big("Steps", number(total.steps), "calls of models")),
      card(money ? "Cost per day" : "Tokens per day", columns(series, { title: money ? "Cost" : "Tokens", show: money ? cost : tokens }), h("details", null, h("summary", null, "As a table"), sumTable("Days", "Day", days, (/** @type {any} */ each) => each.day, total, money))),
      h("div", { class: "split" }, card("By model", !money && parts.length > 0 && partsBar(parts, { unit: "tokens" }), sumTable("Models", "Model", models, (/** @type {any} */ each) => words(each.model ?? "unknown model"), total, money)), card("By agent", sumTable("Agents", "Agent", agents, (/** @type {any} */ each) => h("a", { href: link(["runs"], { agent: each.agent_id }) }, words(each.agent_name ?? each.agent_id)), total, money))),
    );
  }

  #budgets() {
    const table = pagedTable(this, {
      label: "Budgets",
      columns: [
        ["Agent", (row) => agentLink(row.agent_id, "agents", row.agent_name)],
        ["Spent", (row) => [row.usd !== null && meter(row.spent_usd, row.usd, `${cost(row.spent_usd)} of ${cost(row.usd)}`), row.tokens !== null && meter(row.spent_tokens, row.tokens, `${number(row.spent_tokens)} of ${tokens(row.tokens)}`)]],
        ["Period", (row) => (row.period === "total" ? "in all" : `each ${row.period}`)],
        ["State", (row) => (row.used_up ? tag("used up", "bad") : tag("open", "good"))],
        ["New period", (row) => (row.frees_at ? ago(row.frees_at) : "never")],
        ["Actions", (row) => side(action(this, "Change", async () => { if (await askBudget(row.agent_id, row.agent_name, row)) await table.reload(); }, { label: `Change the budget of ${row.agent_name}` }), action(this, "Remove", async () => { await patch(`v1/agents/${row.agent_id}`, { kelpie_budget: null }); say(`Removed the budget of ${row.agent_name}`); await table.reload(); }, { label: `Remove the budget of ${row.agent_name}` })), "actions"],
      ],
      none: empty("No agent has a budget."),
      load: pagesOf("v1/kelpie/budgets", {}, { key: "agent_id" }),
    });
    return table;
  }

  /** @param {() => Promise<void>} again */
  async #newBudget(again) {
    const newest = await this.get("v1/agents/", { limit: 200, include: "agent.tags" });
    const chosen = await ask("New budget", [{ name: "agent", label: "Agent", kind: "select", options: newest.map((/** @type {any} */ each) => ({ value: each.id, label: each.name })), hint: "The 200 newest agents. Others: `kelpie agents budget`." }], "Continue", async (values) => newest.find((/** @type {any} */ each) => each.id === values.agent) ?? null);
    if (chosen && (await askBudget(chosen.id, chosen.name, chosen.kelpie_budget ?? null))) await again();
  }
}

/** @param {string} label @param {string} value @param {string} about */
function big(label, value, about) {
  return h("section", { class: "card" }, h("h2", { class: "hint" }, label), h("p", { class: "big" }, value), note(about));
}

/** @param {string} label @param {string} first @param {any[]} rows @param {(row: any) => import("../core/dom.js").Child} name @param {any} total @param {boolean} money */
function sumTable(label, first, rows, name, total, money) {
  const whole = (money ? total.usd : total.tokens) || 1;
  return scrolledTable(label, [
    [first, name],
    ["Cost", (each) => cost(each.usd), "num"],
    ["Tokens", (each) => tokens(each.tokens), "num"],
    ["Steps", (each) => count(each.steps, "step"), "num"],
    ["Share", (each) => percent((money ? each.usd : each.tokens) / whole), "num"],
  ], rows);
}

/** @param {Date} date */
function localDay(date) {
  return [date.getFullYear(), String(date.getMonth() + 1).padStart(2, "0"), String(date.getDate()).padStart(2, "0")].join("-");
}

customElements.define("kelpie-usage", UsageScreen);
