// A field to choose an agent: it suggests names from the server and gives the id of the chosen one.

import { get } from "./api.js";
import { ask } from "./dialog.js";
import { freshId, h, labelled, replace } from "./dom.js";

const SUGGESTED = 20;
const PAUSE_MS = 150;

/**
 * @param {{id: string, name: string} | null} chosen
 * @param {(agent: {id: string, name: string} | null) => void} changed
 * @param {AbortSignal} signal
 * @param {string} [placeholder] what an empty field means
 */
export function agentField(chosen, changed, signal, placeholder = "All agents") {
  const listId = freshId("agents");
  /** @type {{id: string, name: string}[]} */
  let known = chosen ? [chosen] : [];
  let timer = 0;
  const list = h("datalist", { id: listId });
  const input = h("input", { type: "search", list: listId, value: chosen?.name ?? "", placeholder, autocomplete: "off", on: {
    input: () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => void suggest(), PAUSE_MS);
    },
    change: () => void choose(),
  } });

  async function suggest() {
    const found = await get("v1/agents/", { query_text: input.value.trim(), limit: SUGGESTED, include: "agent.tags" }, signal);
    known = found.map((/** @type {any} */ each) => ({ id: each.id, name: each.name }));
    replace(list, known.map((each) => h("option", { value: each.name })));
    if (known.some((each) => each.name === input.value)) await choose();
  }

  async function choose() {
    const text = input.value.trim();
    if (text === "") changed(null);
    else {
      const found = known.find((each) => each.name === text || each.id === text);
      if (found) changed(found);
    }
  }

  const field = labelled("Agent", input);
  field.append(list);
  return field;
}

/**
 * A dialog that asks for an agent as well.
 * @param {string} title
 * @param {import("./dialog.js").Field[]} fields
 * @param {string} label
 * @param {(agentId: string, values: import("./dialog.js").Values) => Promise<any>} act
 * @param {AbortSignal} signal
 */
export function askWithAgent(title, fields, label, act, signal) {
  /** @type {string | null} */
  let agent = null;
  const field = agentField(null, (found) => (agent = found?.id ?? null), signal, "Choose an agent");
  return ask(title, fields, label, async (values) => {
    if (!agent) throw new RangeError("Choose an agent from the list.");
    return act(agent, values);
  }, { intro: field });
}
