// Tools and MCP: tools with their schemas, a form that runs them, servers and their state, permissions, and calls.
// `#/tools`, `#/tools/tool/<id>`, `#/tools/servers`, `#/tools/permissions`, `#/tools/calls`.

import {
  action, agentField, agentLink, ask, bytes, card, choice, code, count, deleteButton, duration, empty, factList,
  filters, h, head, hint, keep, link, linkTo, longText, note, number, pagedTable, pagesOf, parsedJson, partHead,
  patch, post, printed, put, replace, say, Screen, searchField, shortened, side, tabs, tag, tagList, time, words,
} from "../core/index.js";
import { schemaForm } from "./tools/schema_form.js";

const REFRESH_MS = 5000;
const RUN_MS = 300_000;
const OUTCOMES = [["", "Any outcome"], ["success", "Done"], ["error", "Failed"], ["refused", "Refused"], ["denied", "Denied"], ["invalid", "Invalid"], ["interrupted", "Interrupted"]];
/** @type {[string, string][]} */
const PARTS = [["list", "Tools"], ["servers", "MCP servers"], ["permissions", "Permissions"], ["calls", "Calls"]];

export default class ToolsScreen extends Screen {
  async show() {
    const [, part = "list", id] = this.route.path;
    if (part === "tool" && id) return this.#tool(id);
    const place = h("div", { class: "screen" });
    replace(this, head("Tools and MCP"), tabs("Parts", ["tools"], PARTS, part), place);
    if (part === "servers") await this.#servers(place);
    else if (part === "permissions") await this.#permissions(place);
    else if (part === "calls") await this.#calls(place);
    else await this.#list(place);
  }

  /** @param {Element} place */
  async #list(place) {
    let name = this.asked("search");
    const [permitted, used] = await Promise.all([this.get("v1/kelpie/tools", { limit: 1000 }), this.get("v1/kelpie/tools/usage", { hours: 168 })]);
    const rights = new Map(permitted.map((/** @type {any} */ each) => [each.id, each]));
    const calls = new Map(used.map((/** @type {any} */ each) => [each.tool, each]));
    const table = pagedTable(this, {
      label: "Tools",
      link: (row) => link(["tools", "tool", row.id]),
      columns: [
        ["Tool", (row) => code(row.name), "tool"],
        ["Description", (row) => words(shortened(String(row.description ?? "").split("\n")[0], 300)), "text"],
        ["Kind", (row) => words(String(row.tool_type ?? "").replaceAll("_", " ")), "extra"],
        ["May do", (row) => tagList(rights.get(row.id)?.capabilities)],
        ["Permitted", (row) => permission(rights.get(row.id))],
        ["Calls in 7 days", (row) => { const one = calls.get(row.name); return one ? [count(one.calls, "call"), hint(`${number(one.errors)} failed`)] : "none"; }, "num"],
      ],
      none: empty("No tools match."),
      load: pagesOf("v1/tools/", () => ({ search: name, order: "asc" })),
    });
    const search = h("input", { type: "search", value: name, "aria-label": "Search tools by name", placeholder: "Search by name", on: { change: () => { name = search.value.trim(); keep({ search: name }); void this.attempt(() => table.restart()); } } });
    replace(place, search, table.node);
    await table.reload();
  }

  /** @param {string} id */
  async #tool(id) {
    const tool = await this.get(`v1/tools/${id}`);
    const schema = tool.json_schema?.parameters ?? tool.args_json_schema ?? {};
    const form = schemaForm(schema);
    const shown = h("div", { class: "screen", "aria-live": "polite" });
    const problem = h("div");
    const own = ["custom"].includes(tool.tool_type) && tool.source_code;
    /** @type {string | null} */
    let agent = null;
    const field = agentField(null, (found) => (agent = found?.id ?? null), this.signal, "Choose an agent");
    const run = async () => {
      const args = form.read();
      if (!own && !agent) throw new RangeError("This tool belongs to agents. Choose an agent that has it.");
      replace(shown, note("Running …"));
      try {
        const told = agent ? await post(`v1/agents/${agent}/tools/${encodeURIComponent(tool.name)}/run`, { args }, { patienceMs: RUN_MS, signal: this.signal }) : await post("v1/tools/run", { source_code: tool.source_code, source_type: tool.source_type, args, name: tool.name, json_schema: tool.json_schema, pip_requirements: tool.pip_requirements, npm_requirements: tool.npm_requirements }, { patienceMs: RUN_MS, signal: this.signal });
        replace(shown, resultOf(told));
      } catch (error) {
        replace(shown);
        throw error;
      }
    };
    this.windowTitle(`Tool ${tool.name}`);
    replace(
      this,
      head(["Tool ", words(tool.name)], linkTo(["tools"], "All tools", { class: "button" })),
      h("div", { class: "split" },
        card("Run", note(own ? "Its code runs in the sandbox. With an agent, it runs with the agent's secrets and permissions." : "It runs for the agent that you choose, and can change its memory."), field, form.node, problem, side(action(problem, "Run tool", run, { class: "primary" })), shown),
        card("About", factList([["Id", code(tool.id)], ["Kind", words(String(tool.tool_type ?? "").replaceAll("_", " "))], ["Approval", tool.default_requires_approval ? "asked for by default" : "not asked for by default"], ["Result", `at most ${count(tool.return_char_limit, "character")}`], ["Tags", tagList(tool.tags)], ["Packages", words([...(tool.pip_requirements ?? []), ...(tool.npm_requirements ?? [])].map((/** @type {any} */ each) => `${each.name}${each.version ? ` ${each.version}` : ""}`).join(", ") || "none")]]), longText(tool.description ?? "", { label: "Description", shown: 3000 }), h("a", { href: link(["tools", "calls"], { tool: tool.name }) }, "Its calls"))),
      card("Schema", longText(JSON.stringify(schema, null, 2), { label: "Schema", shown: 6000 })),
      tool.source_code && card("Source code", longText(tool.source_code, { label: "Source code" })),
    );
  }

  /** @param {Element} place */
  async #servers(place) {
    const draw = async () => {
      const servers = await this.get("v1/kelpie/mcp-servers");
      replace(list, servers.length ? servers.map((/** @type {any} */ each) => this.#server(each, place, draw)) : empty("No MCP servers.", "An MCP server offers tools to agents. Add one, then attach its tools to an agent."));
    };
    const list = h("div", { class: "screen" });
    const add = async () => {
      const made = await ask(
        "Add MCP server",
        [
          { name: "name", label: "Name", required: true },
          { name: "kind", label: "Reached by", kind: "select", options: [{ value: "streamable_http", label: "HTTP" }, { value: "sse", label: "HTTP with events (older)" }, { value: "stdio", label: "A program on the server" }] },
          { name: "where", label: "Address or command", required: true, hint: "The address of its endpoint, or a command with its arguments." },
          { name: "token", label: "Token", kind: "password", hint: "Sent as Authorization: Bearer. Empty: none." },
        ],
        "Add MCP server",
        (values) => {
          const [command, ...args] = String(values.where).trim().split(/\s+/);
          const config = values.kind === "stdio" ? { mcp_server_type: "stdio", command, args } : { mcp_server_type: values.kind, server_url: values.where, ...(values.token ? { auth_header: "Authorization", auth_token: `Bearer ${values.token}` } : {}) };
          return post("v1/mcp-servers/", { server_name: values.name, config }, { patienceMs: RUN_MS });
        },
      );
      if (made) {
        say(`Added ${made.server_name}`);
        await draw();
      }
    };
    replace(place, partHead("Connections are made when an agent needs them.", action(place, "Add MCP server", add)), list);
    this.repeat(() => (document.querySelector("details[open]") ? null : draw()), REFRESH_MS);
    await draw();
  }

  /** @param {any} server @param {Element} place @param {() => Promise<void>} again */
  #server(server, place, again) {
    const state = server.breaker === "closed" ? (server.connected ? ["good", "connected"] : ["", "not connected now"]) : ["bad", server.breaker === "open" ? "left alone after failures" : "being tried again"];
    const tools = h("div");
    return h(
      "section",
      { class: "card" },
      h("div", { class: "head" }, h("h2", null, words(server.server_name), " ", tag(state[1], state[0])), side(action(place, "Refresh tools", async () => {
        const told = await patch(`v1/mcp-servers/${server.id}/refresh`, undefined, { patienceMs: RUN_MS });
        say(`${server.server_name}: ${count(told.added.length, "tool")} added, ${number(told.updated.length)} changed, ${number(told.deleted.length)} removed`);
        await again();
      }, { label: `Refresh tools of ${server.server_name}` }), deleteButton(place, "MCP server", "Its tools are removed from all agents.", `v1/mcp-servers/${server.id}`, again, { label: `Delete ${server.server_name}` }))),
      factList([["Kind", words(server.mcp_server_type)], ["Protocol", words(server.protocol_version ?? "not known yet")], ["Program", words(server.server_info ? `${server.server_info.name ?? ""} ${server.server_info.version ?? ""}` : "not known yet")], ["Calls", count(server.calls, "call")], ["Failures in a row", count(server.failures, "failure")], ...(server.last_error ? [/** @type {[string, import("../core/dom.js").Child]} */ (["Last error", words(shortened(server.last_error, 500))])] : [])]),
      h("details", { on: { toggle: async (/** @type {Event} */ event) => {
        if (!(/** @type {HTMLDetailsElement} */ (event.target).open) || tools.firstChild) return;
        const found = await this.get(`v1/mcp-servers/${server.id}/tools`);
        replace(tools, found.length ? h("ul", { class: "plain" }, found.map((/** @type {any} */ each) => h("li", null, linkTo(["tools", "tool", each.id], code(each.name)), " ", hint(words(shortened(String(each.description ?? "").split("\n")[0], 160)))))) : note("It offers no tools."));
      } } }, h("summary", null, "Its tools"), tools),
    );
  }

  /** @param {Element} place */
  async #permissions(place) {
    const policy = await this.get("v1/kelpie/policy");
    const shown = { permissions: policy.permissions, limits: policy.limits };
    const edit = async () => {
      const done = await ask("Tool policy", [{ name: "policy", label: "Policy (JSON)", kind: "textarea", rows: 16, value: JSON.stringify(shown, null, 2), hint: "docs/permissions.md explains the fields." }], "Save policy", async (values) => (await put("v1/kelpie/policy", parsedJson(values.policy)), true));
      if (!done) return;
      say("Changed the tool policy");
      await this.#permissions(place);
    };
    const chosen = this.route.query.get("agent");
    const agent = chosen ? await this.agent(chosen) : null;
    const rights = h("div", { class: "screen" });
    const of = async (/** @type {string} */ id) => {
      const found = await this.get(`v1/agents/${id}/permissions`);
      replace(rights, factList(found.tools.map((/** @type {any} */ each) => [each.name, [permission(each), " ", tagList(each.capabilities)]])));
    };
    replace(
      place,
      card("Policy for all agents", note("What tools of all agents may do, and their limits. An agent can have stricter rules of its own."), policyFacts(shown), side(action(place, "Change the policy", edit))),
      card("Limits that the server sets", policyFacts(policy.server)),
      card("What an agent's tools may do", agentField(agent, (found) => { if (found) { keep({ agent: found.id }); void this.attempt(() => of(found.id)); } }, this.signal, "Choose an agent"), rights),
    );
    if (chosen) await of(chosen);
  }

  /** @param {Element} place */
  async #calls(place) {
    const chosen = { tool: this.asked("tool"), outcome: this.asked("outcome") };
    const table = pagedTable(this, {
      label: "Calls",
      columns: [
        ["When", (row) => time(row.created_at), "short"],
        ["Tool", (row) => code(row.tool)],
        ["Agent", (row) => agentLink(row.agent_id)],
        ["Outcome", (row) => [tag(row.outcome, row.outcome === "success" ? "good" : row.outcome === "error" || row.outcome === "refused" ? "bad" : ""), " ", words(shortened(row.reason, 200))]],
        ["Took", (row) => duration(row.duration_ms), "num"],
        ["CPU", (row) => (row.cpu_ms ? duration(row.cpu_ms) : "–"), "num"],
        ["Memory", (row) => (row.memory_peak_bytes ? bytes(row.memory_peak_bytes) : "–"), "num"],
        ["Run", (row) => (row.run_id ? linkTo(["runs", row.run_id], "Run") : "–"), "short"],
      ],
      none: empty("No calls match."),
      load: pagesOf("v1/kelpie/tools/calls", chosen, { key: "number", cursor: "before" }),
    });
    const apply = () => {
      keep(chosen);
      void this.attempt(() => table.restart());
    };
    replace(place, filters(searchField("Tool", chosen.tool, (tool) => { chosen.tool = tool; apply(); }), choice("Outcome", OUTCOMES, chosen.outcome, (outcome) => { chosen.outcome = outcome; apply(); })), table.node);
    this.repeat(() => table.reload(), REFRESH_MS);
    await table.reload();
  }
}

/** A policy as people read it: `memory_mb` becomes "memory (MB)". @param {any} policy */
function policyFacts(policy) {
  const { allow, deny } = policy.permissions;
  return factList([["May do", allow ? tagList(allow) : "everything that the server permits"], ["May not do", deny?.length ? tagList(deny) : "nothing is refused"], ...Object.entries(policy.limits).map(([name, limit]) => /** @type {[string, string]} */ ([name.replace(/_mb$/, " (MB)").replace(/_s$/, " (seconds)").replaceAll("_", " "), limit === null ? "no limit" : number(Number(limit))]))]);
}

/** @param {any} each */
function permission(each) {
  if (!each) return "–";
  return each.permitted ? tag("permitted", "good") : [tag(`refused by the ${each.refused_by}`, "bad"), " ", words(each.reason)];
}

/** @param {any} told */
function resultOf(told) {
  const value = told.func_return ?? told.tool_return;
  return [h("p", null, tag(told.status === "success" ? "done" : "failed", told.status === "success" ? "good" : "bad")), longText(typeof value === "string" ? value : JSON.stringify(value, null, 2), { label: "Result" }), printed("Output", told.stdout), printed("Errors", told.stderr)];
}

customElements.define("kelpie-tools", ToolsScreen);
