// Agents: the list with its search, and the page of one agent.

import {
  action, button, card, code, cost, count, empty, factList, go, h, head, hint, keep, link, linkTo, longText, note,
  number, pagedTable, pagesOf, post, reasonText, replace, say, Screen, shortcut, shortened, side, tagList, time,
  tokens, words,
} from "../core/index.js";
import { createAgent, deleteAgent, duplicateAgent, editAgent, resetAgent } from "./agent_forms.js";
import { agentSelection } from "./agent_selection.js";

const PAUSE_MS = 200; // between the last key and the search

export default class AgentsScreen extends Screen {
  async show() {
    const id = this.route.path[1];
    await (id ? this.#one(id) : this.#list());
  }

  async #list() {
    let asked = this.asked("search");
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
    const chosen = agentSelection(this, async () => { await Promise.all([table.restart(), sum()]); });
    const table = pagedTable(this, {
      label: "Agents",
      link: (row) => link(["chat", row.id]),
      columns: [
        ["Name", (row) => h("span", { class: "clamp" }, words(row.name))],
        ["Model", (row) => words(row.model ?? row.llm_config?.handle ?? "")],
        ["Description", (row) => words(shortened(row.description, 300)), "text"],
        ["Tags", (row) => tagList(row.tags?.slice(0, 6))],
        ["Last turn", (row) => (row.last_run_completion ? [time(row.last_run_completion), " ", hint(reasonText(row.last_stop_reason))] : "never")],
        ["More", (row) => linkTo(["agents", row.id], "Details", { "aria-label": `Details of ${row.name}` }), "short"],
        ["Select", (row) => chosen.box(row), "short"],
      ],
      none: empty("No agents here.", "An agent remembers, uses tools and answers. Create one, or search for another name.", button("New agent", () => void this.attempt(create), "primary")),
      load: pagesOf("v1/agents/", () => ({ query_text: asked, include: "agent.tags", order: "desc" })),
    });
    const sum = async () => { replace(total, count(await this.get("v1/agents/count"), "agent")); };
    replace(this, head("Agents", total, chosen.create, action(this, ["New agent ", h("kbd", null, "n")], create, { class: "primary" })), search, chosen.node, table.node);
    shortcut("n", "New agent", () => void this.attempt(create), this.signal);
    await Promise.all([table.reload(), sum()]);
  }

  /** @param {string} id */
  async #one(id) {
    const [agent, spent] = await Promise.all([this.get(`v1/agents/${id}`), this.get(`v1/kelpie/agents/${id}/spending`)]);
    this.windowTitle(agent.name);
    /** @param {string} label @param {() => Promise<unknown>} act @param {string} [look] */
    const then = (label, act, look) => action(this, label, async () => { if (await act()) await this.#one(id); }, { class: look });
    const stopped = agent.kelpie_status?.state === "stopped";
    const actions = [
      linkTo(["chat", id], "Chat", { class: "button primary" }),
      then("Edit", () => editAgent(agent, this.signal)),
      then("Duplicate", async () => { const made = await duplicateAgent(agent); if (made) go(["agents", made]); }),
      then(stopped ? "Start" : "Stop", async () => { await post(`v1/agents/${id}/${stopped ? "start" : "stop"}`); say(stopped ? `Started agent ${agent.name}` : `Stopped agent ${agent.name}`); return true; }),
      then("Reset messages", () => resetAgent(agent), "danger"),
      then("Delete", async () => { if (await deleteAgent(agent)) go(["agents"]); }, "danger"),
    ];
    const facts = factList([
      ["Id", code(agent.id)],
      ["Model", words(agent.model ?? agent.llm_config?.handle)],
      ["Context window", tokens(agent.llm_config?.context_window)],
      ["Type", words(agent.agent_type)],
      ["Description", words(agent.description ?? "none")],
      ["Tags", tagList(agent.tags)],
      ["Created", time(agent.created_at)],
      ["Last turn", agent.last_run_completion ? [time(agent.last_run_completion), " ", reasonText(agent.last_stop_reason)] : "never"],
      ["Spent", [cost(spent.usd), ", ", tokens(spent.tokens), ", ", count(spent.steps, "step"), spent.unpriced_calls ? `, ${count(spent.unpriced_calls, "call")} of unknown price` : ""]],
    ]);
    const more = side(h("a", { href: link(["runs"], { agent: id }) }, "Runs"), linkTo(["prompt", id], "Next prompt"), linkTo(["memory", id], "Memory"));
    const tools = (agent.tools ?? []).map((/** @type {any} */ tool) => h("li", null, code(tool.name), " ", hint(words(shortened(String(tool.description ?? "").split("\n")[0], 160)))));
    replace(
      this,
      head(words(agent.name), ...actions),
      h("div", { class: "split" }, card("About", facts, more), card(`Tools (${number(tools.length)})`, tools.length ? h("ul", { class: "plain" }, tools) : note("It has no tools."))),
      card("Instructions", longText(agent.system ?? "", { label: "Instructions" })),
      card("Memory blocks", (agent.memory?.blocks ?? agent.blocks ?? []).map((/** @type {any} */ block) => [h("h3", null, words(block.label), " ", hint(`${number(block.value.length)} of ${number(block.limit)} characters`)), longText(block.value, { label: `Block ${block.label}` })])),
    );
  }
}

customElements.define("kelpie-agents", AgentsScreen);
