// Dialogs that create, change, copy, reset and delete an agent. Each resolves when it is done, with null if it was not.

import { ApiError, ask, confirm, get, h, listOfWords, patch, post, remove, say, words } from "../core/index.js";

/** @typedef {{id: string, name: string, model?: string, description?: string | null, system?: string, tags?: string[], llm_config?: {handle?: string, context_window?: number}}} Agent */

const NO_TEMPLATE = "";

/** @param {AbortSignal} signal */
async function modelOptions(signal) {
  const found = await get("v1/models/", {}, signal);
  return found.map((/** @type {any} */ each) => ({ value: each.handle, label: each.display_name ?? each.handle }));
}

/** @param {AbortSignal} signal @returns {Promise<Agent | null>} */
export async function createAgent(signal) {
  const [models, templates] = await Promise.all([modelOptions(signal), get("v1/templates", {}, signal)]);
  const offered = [{ value: NO_TEMPLATE, label: "None" }, ...templates.templates.map((/** @type {any} */ each) => ({ value: each.name, label: each.name }))];
  return ask(
    "New agent",
    [
      { name: "name", label: "Name", required: true },
      { name: "model", label: "Model", value: models[0]?.value ?? "", options: models, hint: "Choose one of the list, or type provider/model." },
      { name: "template", label: "Template", kind: "select", options: offered, hint: "With a template, the fields below and the model are taken from it." },
      { name: "description", label: "Description" },
      { name: "persona", label: "Persona (memory block)", kind: "textarea", rows: 2, hint: "Who the agent is." },
      { name: "human", label: "Human (memory block)", kind: "textarea", rows: 2, hint: "What the agent knows about you." },
      { name: "tags", label: "Tags", hint: "Separated by commas." },
    ],
    "Create agent",
    async (values) => {
      const made = values.template ? await fromTemplate(values) : await fromFields(values);
      say(`Created agent ${made.name}`);
      return made;
    },
  );
}

/** @param {import("../core/dialog.js").Values} values @returns {Promise<Agent>} */
async function fromTemplate(values) {
  const made = await post(`v1/templates/${encodeURIComponent(String(values.template))}:latest/agents`, { agent_name: values.name, tags: listOfWords(values.tags) });
  return get(`v1/agents/${made.agent_ids[0]}`);
}

/** @param {import("../core/dialog.js").Values} values @returns {Promise<Agent>} */
function fromFields(values) {
  const blocks = ["persona", "human"].map((label) => ({ label, value: String(values[label] ?? "") }));
  return post("v1/agents/", { name: values.name, model: values.model || undefined, description: values.description || null, memory_blocks: blocks, tags: listOfWords(values.tags) });
}

/** @param {Agent} agent @param {AbortSignal} signal @returns {Promise<Agent | null>} */
export async function editAgent(agent, signal) {
  const models = await modelOptions(signal);
  return ask(
    "Edit agent",
    [
      { name: "name", label: "Name", required: true, value: agent.name },
      { name: "model", label: "Model", value: agent.model ?? agent.llm_config?.handle ?? "", options: models },
      { name: "window", label: "Context window (tokens)", kind: "number", value: agent.llm_config?.context_window ?? "" },
      { name: "description", label: "Description", value: agent.description ?? "" },
      { name: "system", label: "Instructions", kind: "textarea", rows: 8, value: agent.system ?? "" },
      { name: "tags", label: "Tags", value: (agent.tags ?? []).join(", "), hint: "Separated by commas." },
    ],
    "Save changes",
    async (values) => {
      /** @type {{[field: string]: unknown}} */
      const changes = { name: values.name, description: values.description || null, system: values.system, tags: listOfWords(values.tags) };
      if (values.model && values.model !== agent.model) changes.model = values.model;
      const window = Number(values.window);
      if (window > 0 && window !== agent.llm_config?.context_window) changes.context_window_limit = window;
      const changed = await patch(`v1/agents/${agent.id}`, changes);
      say(`Changed agent ${changed.name}`);
      return changed;
    },
  );
}

/** @param {Agent} agent @returns {Promise<string | null>} the id of the copy */
export function duplicateAgent(agent) {
  return ask(
    "Duplicate agent",
    [
      { name: "name", label: "Name of the copy", required: true, value: `${agent.name} copy` },
      { name: "messages", label: "Copy the messages too", kind: "checkbox", value: false },
    ],
    "Duplicate",
    async (values) => {
      const document = await get(`v1/agents/${agent.id}/export`);
      const form = new FormData();
      form.append("file", new File([typeof document === "string" ? document : JSON.stringify(document)], "agent.af", { type: "application/json" }));
      form.append("override_name", String(values.name));
      form.append("append_copy_suffix", "false");
      form.append("strip_messages", String(!values.messages));
      const made = await post("v1/agents/import", form);
      const id = made?.agent_ids?.[0];
      if (!id) throw new ApiError("The copy was not made.", { status: 500 });
      say(`Created agent ${values.name} as a copy of ${agent.name}`);
      return id;
    },
  );
}

/** @param {Agent} agent */
export function resetAgent(agent) {
  return confirm("Reset messages", h("span", null, "This deletes all messages of ", words(agent.name), ". Its memory, tools and settings stay. It cannot be undone."), "Delete messages", async () => {
    await patch(`v1/agents/${agent.id}/reset-messages`, { add_default_initial_messages: false });
    say(`Deleted the messages of ${agent.name}`);
  });
}

/** @param {Agent} agent */
export function deleteAgent(agent) {
  return confirm("Delete agent", h("span", null, "This deletes ", words(agent.name), " with its messages and its memory. It cannot be undone."), "Delete agent", async () => {
    await remove(`v1/agents/${agent.id}`);
    say(`Deleted agent ${agent.name}`);
  });
}
