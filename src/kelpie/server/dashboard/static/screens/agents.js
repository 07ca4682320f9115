// Agents: the list with its search, and the page of one agent.

import { get, post } from "../core/api.js";
import { h, replace, words } from "../core/dom.js";
import { cost, count, number, shortId, tokens } from "../core/format.js";
import { longText } from "../core/long_text.js";
import { empty, fail, say } from "../core/notice.js";
import { card, factList, head, hint, note, pagesOf, side, tagList } from "../core/parts.js";
import { go, keep, link } from "../core/router.js";
import { Screen } from "../core/screen.js";
import { shortcut } from "../core/shortcuts.js";
import { reasonText } from "../core/stop_reasons.js";
import { pagedTable } from "../core/table.js";
import { time } from "../core/time.js";

import { createAgent, deleteAgent, duplicateAgent, editAgent, resetAgent } from "./agent_forms.js";
import { SCREENS } from "./registry.js";

const PAGE = 50;
const PAUSE_MS = 200; // between the last key and the search

export default class AgentsScreen extends Screen {
  async show() {
    const id = this.route.path[1];
    await (id ? this.#one(id) : this.#list());
  }

  async #list() {
    let asked = this.route.query.get("search") ?? "";
    let timer = 0;
    const total = h("span", { class: "hint", "aria-live": "polite" });
    const search = h("input", { type: "search", value: asked, "aria-label": "Search agents by name", placeholder: "Search by name", on: { input: () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => {
        asked = search.value.trim();
        keep({ search: asked });
        void this.attempt(() => table.restart());
      }, PAUSE_MS);
    } } });
    const create = async () => {
      const made = await createAgent(this.signal);
      if (made) go(["chat", made.id]);
    };
    const table = pagedTable({
      label: "Agents",
      signal: this.signal,
      link: (/** @type {any} */ row) => link(["chat", row.id]),
      columns: [
        { label: "Name", cell: (row) => words(row.name) },
        { label: "Model", cell: (row) => words(row.model ?? row.llm_config?.handle ?? "") },
        { label: "Description", cell: (row) => words(String(row.description ?? "").slice(0, 200)) },
        { label: "Tags", cell: (row) => tagList(row.tags) },
        { label: "Last turn", cell: (row) => (row.last_run_completion ? [time(row.last_run_completion), " ", hint(reasonText(row.last_stop_reason))] : "never") },
        { label: "More", cell: (row) => h("a", { href: link(["agents", row.id]), "aria-label": `Details of ${row.name}` }, "Details") },
      ],
      none: empty("No agents here.", h("p", null, "An agent remembers, uses tools and answers. Create one, or search for another name."), h("button", { type: "button", class: "primary", on: { click: () => void this.attempt(create) } }, "New agent")),
      load: (/** @type {string | null} */ after, signal) => pagesOf("v1/agents/", { query_text: asked, include: "agent.tags", order: "desc" }, PAGE)(after, signal),
    });
    replace(this, head("Agents", side(total, h("button", { type: "button", class: "primary", on: { click: () => void this.attempt(create) } }, "New agent ", h("kbd", null, "n")))), search, table.node);
    shortcut("n", "New agent", () => void this.attempt(create), this.signal);
    this.onReturn(() => table.reload());
    await Promise.all([table.reload(), get("v1/agents/count", {}, this.signal).then((all) => replace(total, count(all, "agent")))]);
  }

  /** @param {string} id */
  async #one(id) {
    const [agent, spent] = await Promise.all([get(`v1/agents/${id}`, {}, this.signal), get(`v1/kelpie/agents/${id}/spending`, {}, this.signal)]);
    this.windowTitle(agent.name);
    /** @param {() => Promise<unknown>} act */
    const then = (act) => async () => {
      try {
        if (await act()) await this.#one(id);
      } catch (error) {
        if (!this.signal.aborted) fail(this, error);
      }
    };
    const stopped = agent.kelpie_status === "stopped" || agent.status === "stopped";
    const actions = side(h("a", { class: "button primary", href: link(["chat", id]) }, "Chat"),
      h("button", { type: "button", on: { click: then(() => editAgent(agent, this.signal)) } }, "Edit"),
      h("button", { type: "button", on: { click: then(async () => { const made = await duplicateAgent(agent); if (made) go(["agents", made]); return false; }) } }, "Duplicate"),
      h("button", { type: "button", on: { click: then(async () => { await post(`v1/agents/${id}/${stopped ? "start" : "stop"}`); say(stopped ? `Started agent ${agent.name}` : `Stopped agent ${agent.name}`); return true; }) } }, stopped ? "Start" : "Stop"),
      h("button", { type: "button", class: "danger", on: { click: then(() => resetAgent(agent)) } }, "Reset messages"),
      h("button", { type: "button", class: "danger", on: { click: then(async () => { if (await deleteAgent(agent)) go(["agents"]); return false; }) } }, "Delete"),
    );
    const facts = factList([
      ["Id", h("code", null, agent.id)],
      ["Model", words(agent.model ?? agent.llm_config?.handle)],
      ["Context window", tokens(agent.llm_config?.context_window)],
      ["Type", words(agent.agent_type)],
      ["Description", words(agent.description ?? "none")],
      ["Tags", tagList(agent.tags)],
      ["Created", time(agent.created_at)],
      ["Last turn", agent.last_run_completion ? [time(agent.last_run_completion), " ", reasonText(agent.last_stop_reason)] : "never"],
      ["Spent", [cost(spent.usd), ", ", tokens(spent.tokens), ", ", count(spent.steps, "step"), spent.unpriced_calls ? `, ${count(spent.unpriced_calls, "call")} of unknown price` : ""]],
    ]);
    const more = side(h("a", { href: link(["runs"], { agent: id }) }, "Runs"), h("a", { href: link(["prompt", id]) }, "Next prompt"), SCREENS.some((each) => each.name === "memory") && h("a", { href: link(["memory", id]) }, "Memory"));
    const tools = (agent.tools ?? []).map((/** @type {any} */ tool) => h("li", null, h("code", null, words(tool.name)), " ", hint(words(String(tool.description ?? "").split("\n")[0]?.slice(0, 160)))));
    replace(
      this,
      head(words(agent.name), actions),
      h("div", { class: "split" }, card("About", facts, more), card(`Tools (${number(tools.length)})`, tools.length ? h("ul", { class: "plain" }, tools) : note("It has no tools."))),
      card("Instructions", longText(agent.system ?? "", { label: "Instructions" })),
      card("Memory blocks", (agent.memory?.blocks ?? agent.blocks ?? []).map((/** @type {any} */ block) => [h("h3", null, words(block.label), " ", hint(`${number(block.value.length)} of ${number(block.limit)} characters`)), longText(block.value, { label: `Block ${block.label}` })])),
    );
    this.setAttribute("data-agent", shortId(id));
  }
}

customElements.define("kelpie-agents", AgentsScreen);
