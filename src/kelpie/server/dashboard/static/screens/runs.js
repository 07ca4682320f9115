// Runs: every turn of every agent, with filters; and one run with its steps, its journal and what was said.

import {
  agentField, ago, ApiError, between, button, card, chatPath, choice, code, confirm, cost, count, duration, empty,
  factList, failure, filters, h, head, hint, keep, labelled, link, linkTo, moment, note, number, pagedTable, pagesOf,
  post, reasonText, replace, say, Screen, scrolledTable, shortened, stateTag, tag, time, timeline, tokens, words,
} from "../core/index.js";
import { transcript } from "./chat/transcript.js";

const REFRESH_MS = 4000;
const STATES = [["", "Any state"], ["active", "Running or waiting"], ["stuck", "Stuck"], ["recovered", "Recovered after a crash"], ["completed", "Completed"], ["failed", "Failed"], ["cancelled", "Cancelled"]];
const AGES = [["", "Any age"], ["1", "Last hour"], ["24", "Last day"], ["168", "Last 7 days"], ["720", "Last 30 days"]];
const REASONS = ["error", "llm_api_error", "invalid_llm_response", "invalid_tool_call", "max_steps", "max_tokens_exceeded", "insufficient_credits", "requires_approval", "cancelled", "context_window_overflow_in_system_prompt"];
const FILTERS = ["state", "age", "cost", "reason", "agent"];

export default class RunsScreen extends Screen {
  async show() {
    const id = this.route.path[1];
    await (id ? this.#one(id) : this.#list());
  }

  async #list() {
    /** @type {{[name: string]: string}} */
    const chosen = Object.fromEntries(FILTERS.map((name) => [name, this.route.query.get(name) ?? ""]));
    const agent = chosen.agent ? await this.agent(chosen.agent).catch(forgiving) : null;
    const apply = () => {
      keep(chosen);
      void this.attempt(() => table.restart());
    };
    /** @param {string} name @param {string} label @param {string[][]} options */
    const field = (name, label, options) => choice(label, options, chosen[name], (value) => { chosen[name] = value; apply(); });
    const least = h("input", { type: "number", min: 0, step: "any", value: chosen.cost ?? "", placeholder: "Any cost", on: { change: () => { chosen.cost = least.value; apply(); } } });
    const table = pagedTable(this, {
      label: "Runs",
      link: (row) => link(["runs", row.id]),
      columns: [
        ["Started", (row) => time(row.created_at), "short"],
        ["Agent", (row) => words(row.agent_name || row.agent_id), "text"],
        ["State", stateOf],
        ["How it ended", (row) => [reasonText(row.stop_reason), errorOf(row) && [": ", words(shortened(errorOf(row), 300))]], "text"],
        ["Cost", (row) => [cost(row.kelpie_cost_usd), hint(`${tokens(row.total_tokens)}, ${count(row.step_count, "step")}`)], "num"],
        ["Duration", lengthOf, "num"],
      ],
      none: empty("No runs match.", "A run is one turn of an agent. Change the filters, or send a message to an agent."),
      load: pagesOf("v1/kelpie/runs", () => ({ state: chosen.state, agent_id: chosen.agent, stop_reason: chosen.reason, cost_usd_min: chosen.cost, created_after: chosen.age ? new Date(Date.now() - Number(chosen.age) * 3_600_000).toISOString() : null })),
    });
    replace(
      this,
      head("Runs"),
      filters(field("state", "State", STATES), agentField(agent, (found) => { chosen.agent = found?.id ?? ""; apply(); }, this.signal), field("age", "Age", AGES), field("reason", "How it ended", [["", "In any way"], ...REASONS.map((each) => [each, reasonText(each)])]), labelled("Cost at least ($)", least)),
      table.node,
    );
    this.repeat(() => table.reload(), REFRESH_MS);
    await table.reload();
  }

  /** @param {string} id */
  async #one(id) {
    const [run, steps, messages] = await Promise.all([
      this.get(`v1/kelpie/runs/${id}`),
      this.get(`v1/runs/${id}/steps`, { limit: 200, order: "asc" }),
      this.get(`v1/runs/${id}/messages`, { limit: 200, order: "asc" }),
    ]);
    const spans = await this.get(`v1/runs/${id}/trace`, { limit: 1000 });
    const active = run.status === "running" || run.status === "created";
    const cancel = async () => {
      const done = await confirm("Cancel run", "The turn ends after what it does now. Steps that are stored stay.", "Cancel run", () => post(`v1/agents/${run.agent_id}/messages/cancel`, { run_ids: [id] }));
      if (done) {
        say("Cancelled the run");
        await this.#one(id);
      }
    };
    this.windowTitle(`Run of ${run.agent_name}`);
    const said = transcript();
    said.rest();
    const facts = factList([
      ["Id", code(run.id)],
      ["Agent", linkTo(chatPath(run.agent_id, run.conversation_id), words(run.agent_name))],
      ["State", [stateOf(run), " ", reasonText(run.stop_reason)]],
      ["Started", [moment(run.created_at), ` (${ago(run.created_at)})`]],
      ["Ended", run.completed_at ? moment(run.completed_at) : "not yet"],
      ["Last commit", moment(run.active_at)],
      ["Duration", lengthOf(run)],
      ["First token after", duration(run.ttft_ns === null ? null : run.ttft_ns / 1e6)],
      ["Recovered", run.recoveries ? count(run.recoveries, "time") : "never"],
      ["Used", `${tokens(run.total_tokens)}, ${cost(run.kelpie_cost_usd)}, ${count(run.step_count, "step")}`],
    ]);
    replace(
      this,
      head(["Run of ", words(run.agent_name)], active && button("Cancel run", () => void this.attempt(cancel), "danger"), linkTo(["runs"], "All runs", { class: "button" })),
      run.stuck && h("div", { class: "failure", role: "status" }, h("p", { class: "failure-what" }, `Nothing was stored for ${duration(between(run.active_at, new Date().toISOString()))}: this run may be stuck.`), h("p", null, "A slow model or tool can be the reason. Wait, or cancel the run and send the message again.")),
      errorOf(run) && failure(new ApiError(errorOf(run), { status: 500, remedy: remedyOf(run) })),
      h("div", { class: "split" }, card("Facts", facts), card("Journal", journal(run))),
      card("Steps", stepTable(steps, spans), stepChart(spans)),
      card("What was said", h("div", { class: "said" }, said)),
    );
    run.input.forEach((/** @type {any} */ given, /** @type {number} */ place) => {
      if (given.role === "user") said.said(given.otid ?? `input:${run.id}:${place}`, given.content, run.id);
    });
    said.page(messages.filter((/** @type {any} */ each) => each.message_type !== "system_message"), { more: false });
    said.waiting(new Set());
    if (active) {
      this.repeat(async () => {
        const now = await this.get(`v1/kelpie/runs/${id}`);
        if (now.active_at !== run.active_at || now.status !== run.status) await this.#again(id);
      }, REFRESH_MS / 2);
    }
  }

  /** @param {string} id */
  async #again(id) {
    const top = document.documentElement.scrollTop;
    await this.#one(id);
    document.documentElement.scrollTop = top;
  }
}

/** @param {any} run */
function stateOf(run) {
  return [stateTag(run.status), run.stuck && [" ", tag("stuck", "bad")], run.recoveries > 0 && [" ", tag(`recovered ${count(run.recoveries, "time")}`)]];
}

/** @param {any} run */
function lengthOf(run) {
  return duration(run.total_duration_ns !== null ? run.total_duration_ns / 1e6 : between(run.created_at, new Date().toISOString()));
}

/** @param {any} run @returns {string} */
function errorOf(run) {
  const error = run.metadata?.error;
  return error ? String(error.message ?? error.detail ?? error.type ?? "failed") : "";
}

/** @param {any} run */
function remedyOf(run) {
  if (run.stop_reason === "llm_api_error") return "Check the provider's key and state with `kelpie doctor`, then send the message again.";
  if (run.stop_reason === "insufficient_credits") return "Raise the agent's budget, or wait until its period ends.";
  return "Send the message again; the steps that are listed below are stored.";
}

/** @param {any} run */
function journal(run) {
  if (!run.journal.length) return note("The journal of a run is deleted some time after its end.");
  let before = run.created_at;
  const rows = run.journal.map((/** @type {any} */ each) => {
    const gap = between(before, each.at);
    before = each.at;
    return h("tr", null, h("td", { class: "num" }, number(each.number)), h("td", null, words(COMMITS[each.kind] ?? each.kind)), h("td", null, moment(each.at)), h("td", { class: "num" }, `+${duration(gap)}`));
  });
  return h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Journal" }, h("table", { class: "legend" }, h("tbody", null, rows)));
}

/** @type {{[kind: string]: string}} */
const COMMITS = { open: "input stored", step: "step stored", compact: "context compacted", close: "closed", answers: "answers stored" };

/** @param {any[]} steps @param {any[]} spans */
function stepTable(steps, spans) {
  if (!steps.length) return note("No step is stored yet.");
  const times = new Map(spans.map((each) => [each.span_id, each]));
  /** @param {any} step */
  const spent = (step) => times.get(step.id)?.attributes ?? {};
  return scrolledTable("Steps", [
    ["Step", (step, place) => linkTo(["steps", step.id], `Step ${number(place + 1)}`)],
    ["State", (step) => [stateTag(step.status), step.error_data && [" ", words(shortened(step.error_data.message ?? step.error_type, 160))]]],
    ["Model", (step) => words(step.model_handle), "text"],
    ["Prompt", (step) => tokens(step.prompt_tokens), "num"],
    ["Answer", (step) => tokens(step.completion_tokens), "num"],
    ["Cost", (step) => cost(step.kelpie_cost_usd), "num"],
    ["Model time", (step) => duration(ms(spent(step).llm_request_ns)), "num"],
    ["Tool time", (step) => duration(ms(spent(step).tool_execution_ns)), "num"],
  ], steps);
}

/** @param {any[]} spans */
function stepChart(spans) {
  const [whole, ...rest] = spans;
  if (!whole || rest.length === 0) return null;
  const totalMs = (whole.duration_ns ?? 0) / 1e6;
  const shown = rest.slice(0, 60).map((each, place) => ({ label: `Step ${place + 1}: ${duration(each.duration_ns / 1e6)}`, startMs: (each.start_time_ns - whole.start_time_ns) / 1e6, ms: each.duration_ns / 1e6 }));
  return h("figure", { class: "chart" }, h("figcaption", { class: "hint" }, `When each step ran, within ${duration(totalMs)}`), timeline(shown, totalMs));
}

/** @param {number | null | undefined} ns */
const ms = (ns) => (ns === null || ns === undefined ? null : ns / 1e6);

/** @param {unknown} error */
function forgiving(error) {
  if (error instanceof ApiError && [404, 422].includes(error.status)) return null;
  throw error;
}

customElements.define("kelpie-runs", RunsScreen);
