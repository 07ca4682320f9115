// The inbox: everything that waits for a person, across all agents. Each thing is answered where it stands.

import {
  action, agentLink, ago, ApiError, chatPath, code, cost, count, empty, failure, h, head, hint, linkTo, longText,
  moment, note, number, patch, post, prettyJson, replace, say, Screen, sendTurn, shortened, tag, tokens, words,
} from "../core/index.js";
import { askBudget } from "./budget_form.js";
import { schemaForm } from "./tools/schema_form.js";

const SHOWN = 50;
const REFRESH_MS = 5000;

/** @typedef {{key: string, at: string, node: () => HTMLElement}} Item */

export default class InboxScreen extends Screen {
  /** @type {Map<string, HTMLElement>} */
  #shown = new Map();
  #list = h("div", { class: "screen" });
  #total = h("span", { class: "hint", "aria-live": "polite" });
  #problems = h("div", { class: "screen" });
  #none = empty("Nothing waits for you.", "Approvals, questions, used-up budgets and schedules that were given up appear here.");

  async show() {
    replace(this, head("Inbox", this.#total), this.#problems, this.#list, this.#none);
    this.#none.hidden = true;
    this.repeat(() => this.#load(), REFRESH_MS);
    this.onReturn(() => this.#load());
    await this.#load();
  }

  async #load() {
    const found = await Promise.allSettled([this.#approvals(), this.#questions(), this.#budgets(), this.#firings()]);
    if (this.signal.aborted) return;
    const failed = found.flatMap((each) => (each.status === "rejected" ? [each.reason] : []));
    for (const error of failed) if (!(error instanceof ApiError)) throw error;
    if (failed.length === found.length) throw failed[0];
    replace(this.#problems, failed.map((error) => failure(error)));
    const items = found.flatMap((each) => (each.status === "fulfilled" ? each.value : [])).sort((a, b) => (a.at < b.at ? 1 : -1));
    const keys = new Set(items.map((each) => each.key));
    for (const [key, node] of this.#shown) {
      if (keys.has(key)) continue;
      node.remove();
      this.#shown.delete(key);
    }
    items.forEach((each, place) => {
      const node = this.#shown.get(each.key) ?? each.node();
      this.#shown.set(each.key, node);
      if (this.#list.children[place] !== node) this.#list.insertBefore(node, this.#list.children[place] ?? null);
    });
    replace(this.#total, count(items.length, "thing waits", "things wait"));
    this.#none.hidden = items.length > 0 || failed.length > 0;
  }

  /** @returns {Promise<Item[]>} */
  async #approvals() {
    const found = await this.get("v1/kelpie/approvals", { limit: SHOWN });
    return found.flatMap((/** @type {any} */ request) =>
      request.tool_calls.filter((/** @type {any} */ call) => call.waits_for).map((/** @type {any} */ call) => ({ key: call.tool_call_id, at: request.requested_at, node: () => this.#approval(request, call) })),
    );
  }

  /** @param {any} request @param {any} call */
  #approval(request, call) {
    const reason = h("input", { type: "text", "aria-label": "Reason for a denial (optional)", placeholder: "Reason for a denial (optional)" });
    const problem = h("div");
    /** @param {boolean} approve */
    const answer = async (approve) => {
      const waiting = (await this.get(`v1/agents/${request.agent_id}/approvals`, { limit: SHOWN })).filter((/** @type {any} */ each) => each.message_id === request.message_id).flatMap((/** @type {any} */ each) => each.tool_calls.filter((/** @type {any} */ one) => one.waits_for === "approval"));
      const approval = { type: "approval", tool_call_id: call.tool_call_id, approve, ...(reason.value.trim() && !approve ? { reason: reason.value.trim() } : {}) };
      const messages = [{ type: "approval", approvals: [approval], ...(waiting.length > 1 ? { partial: true } : {}) }];
      await begin(request.conversation_id === "default" ? `v1/agents/${request.agent_id}/messages/stream` : `v1/conversations/${request.conversation_id}/messages`, { messages }, this.signal);
      say(approve ? `Approved ${call.name}` : `Denied ${call.name}`);
      await this.#load();
    };
    const place = chatPath(request.agent_id, request.conversation_id);
    const forPerson = call.waits_for === "approval";
    return this.#item(
      forPerson ? "Approval" : "Waits for a client",
      [agentLink(request.agent_id, "chat", request.agent_name), " wants to call ", code(call.name)],
      request.requested_at,
      longText(prettyJson(call.arguments), { label: `Arguments of ${call.name}, ${call.tool_call_id}`, shown: 3000 }),
      problem,
      h("div", { class: "row asked" }, forPerson ? [action(problem, "Approve", () => answer(true), { class: "primary", label: `Approve ${call.name}` }), action(problem, "Deny", () => answer(false), { class: "danger", label: `Deny ${call.name}` }), reason] : hint("The program that declared this tool must answer."), linkTo(place, "Open the conversation")),
    );
  }

  /** @returns {Promise<Item[]>} */
  async #questions() {
    const found = await this.get("v1/kelpie/mcp-tasks", { limit: SHOWN });
    return found.filter((/** @type {any} */ task) => task.questions.length > 0 && ["input_required", "working"].includes(task.status)).map((/** @type {any} */ task) => ({ key: `${task.id} ${task.questions.map((/** @type {any} */ each) => each.key).join(" ")}`, at: task.updated_at, node: () => this.#question(task) }));
  }

  /** @param {any} task */
  #question(task) {
    const problem = h("div");
    const forms = task.questions.map((/** @type {any} */ each) => ({ each, form: schemaForm(each.schema ?? { type: "object", properties: {} }) }));
    /** @param {boolean} accept */
    const answer = async (accept) => {
      const answers = Object.fromEntries(forms.map((/** @type {any} */ one) => [one.each.key, accept ? one.form.read() : null]));
      await post(`v1/kelpie/mcp-tasks/${task.id}/answers`, { answers });
      say(accept ? "Sent the answer" : "Declined the question");
      await this.#load();
    };
    return this.#item(
      "Question",
      [code(task.tool_name), " asks on behalf of ", agentLink(task.agent_id)],
      task.updated_at,
      forms.map((/** @type {any} */ one) => [h("p", null, words(one.each.message)), one.each.url && note("It wants you to open ", code(one.each.url), " yourself. Check the address first."), one.form.node]),
      problem,
      h("div", { class: "row asked" }, action(problem, "Send answer", () => answer(true), { class: "primary" }), action(problem, "Decline", () => answer(false), { class: "danger" }), action(problem, "Cancel the task", async () => { await post(`v1/kelpie/mcp-tasks/${task.id}/cancel`); await this.#load(); })),
    );
  }

  /** @returns {Promise<Item[]>} */
  async #budgets() {
    const found = await this.get("v1/kelpie/budgets", { limit: 500 });
    return found.filter((/** @type {any} */ each) => each.used_up).map((/** @type {any} */ each) => ({ key: `budget ${each.agent_id}`, at: "", node: () => this.#budget(each) }));
  }

  /** @param {any} budget */
  #budget(budget) {
    const problem = h("div");
    const limits = [budget.usd !== null && `${cost(budget.spent_usd)} of ${cost(budget.usd)}`, budget.tokens !== null && `${number(budget.spent_tokens)} of ${tokens(budget.tokens)}`].filter(Boolean).join(", ");
    return this.#item(
      "Budget used up",
      [agentLink(budget.agent_id, "chat", budget.agent_name), ` has used up its budget${budget.period === "total" ? "" : ` of this ${budget.period}`}: ${limits}. It answers no messages.`],
      null,
      problem,
      h("div", { class: "row asked" }, action(problem, "Change the budget", async () => { if (await askBudget(budget.agent_id, budget.agent_name, budget)) await this.#load(); }, { class: "primary", label: `Change the budget of ${budget.agent_name}` }), action(problem, "Remove the budget", async () => { await patch(`v1/agents/${budget.agent_id}`, { kelpie_budget: null }); say(`Removed the budget of ${budget.agent_name}`); await this.#load(); }, { label: `Remove the budget of ${budget.agent_name}` }), hint(budget.frees_at ? `A new period begins ${ago(budget.frees_at)} (${moment(budget.frees_at)}).` : "It has no period: it stays used up.")),
    );
  }

  /** @returns {Promise<Item[]>} */
  async #firings() {
    const found = await this.get("v1/kelpie/firings", { status: "dead", limit: SHOWN });
    return found.map((/** @type {any} */ each) => ({ key: `firing ${each.id}`, at: each.updated_at, node: () => this.#firing(each) }));
  }

  /** @param {any} firing */
  #firing(firing) {
    const problem = h("div");
    return this.#item(
      "Schedule given up",
      ["A schedule of ", agentLink(firing.agent_id), ` failed ${count(firing.attempts, "time")}: `, words(shortened(firing.error ?? "unknown reason", 500))],
      firing.updated_at,
      problem,
      h("div", { class: "row asked" }, action(problem, "Try again", async () => { await post(`v1/kelpie/firings/${firing.id}/requeue`); say("The schedule is tried again"); await this.#load(); }, { class: "primary" }), linkTo(["schedules", firing.schedule_id], "Open the schedule")),
    );
  }

  /** @param {string} kind @param {import("../core/dom.js").Child} what @param {string | null} at @param {...import("../core/dom.js").Child} content */
  #item(kind, what, at, ...content) {
    return h("section", { class: "card" }, h("h2", { class: "waiting" }, tag(kind, "warn"), " ", what), at && note(moment(at)), ...content);
  }
}

/** Sends messages and returns when the server has taken them: the turn goes on by itself. @param {string} path @param {{[field: string]: unknown}} body @param {AbortSignal} signal */
async function begin(path, body, signal) {
  const begun = new AbortController();
  try {
    await sendTurn(path, body, () => begun.abort(), AbortSignal.any([begun.signal, signal]));
  } catch (error) {
    if (!begun.signal.aborted) throw error;
  }
}

customElements.define("kelpie-inbox", InboxScreen);
