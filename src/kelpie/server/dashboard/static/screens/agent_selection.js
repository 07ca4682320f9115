// Several agents at once: chosen ones are deleted, and new ones are created from a list of names. Each has a result.

import { action, ask, confirm, count, get, h, linkTo, listOfWords, openDialog, post, remove, replace, say, words } from "../core/index.js";

const MOST = 100; // in one request
const PATIENCE_MS = 600_000;

/**
 * @param {import("../core/screen.js").Screen} screen
 * @param {() => Promise<void>} changed
 */
export function agentSelection(screen, changed) {
  /** @type {Map<string, string>} names by id */
  const chosen = new Map();
  const node = h("div", { class: "row", role: "group", "aria-label": "Selected agents" });
  const draw = () => {
    node.hidden = chosen.size === 0;
    replace(node, count(chosen.size, "agent"), " selected ", action(screen, "Delete selected", deleteAll, { class: "danger" }), action(screen, "Clear selection", clear));
  };
  const clear = async () => {
    chosen.clear();
    draw();
    await changed();
  };
  const deleteAll = async () => {
    if (chosen.size > MOST) throw new RangeError(`Select at most ${MOST} agents.`);
    const named = [...chosen];
    /** @type {any} */
    let told = null;
    const done = await confirm("Delete agents", ["This deletes ", count(named.length, "agent"), " with all messages and memory: ", named.slice(0, 10).map(([, name], place) => [place > 0 && ", ", words(name)]), named.length > 10 && ` and ${named.length - 10} more`, ". It cannot be undone."], `Delete ${count(named.length, "agent")}`, async () => (told = await remove("v1/agents/batch", { body: { ids: named.map(([id]) => id) }, patienceMs: PATIENCE_MS })));
    if (!done) return;
    showResults("Deleted", told, named.map(([, name]) => name));
    await clear();
  };
  draw();
  return {
    node,
    create: action(screen, "Create several", async () => {
      if (await createAgents(screen.signal)) await changed();
    }),
    /** @param {{id: string, name: string}} row */
    box: (row) => {
      const input = h("input", { type: "checkbox", checked: chosen.has(row.id), "aria-label": `Select ${row.name}`, on: { change: () => {
        if (input.checked) chosen.set(row.id, row.name);
        else chosen.delete(row.id);
        draw();
      } } });
      return input;
    },
  };
}

/** @param {AbortSignal} signal */
async function createAgents(signal) {
  const models = await get("v1/models/", {}, signal);
  return ask(
    "New agents",
    [
      { name: "names", label: "Names", kind: "textarea", rows: 6, required: true, hint: `One in each line, at most ${MOST}.` },
      { name: "model", label: "Model", value: models[0]?.handle ?? "", options: models.map((/** @type {any} */ each) => ({ value: each.handle, label: each.display_name ?? each.handle })) },
      { name: "tags", label: "Tags", hint: "Separated by commas." },
    ],
    "Create agents",
    async (values) => {
      const names = String(values.names).split("\n").map((each) => each.trim()).filter(Boolean);
      const agents = names.map((name) => ({ name, model: values.model || undefined, tags: listOfWords(values.tags) }));
      showResults("Created", await post("v1/agents/batch", { agents }, { patienceMs: PATIENCE_MS }), names);
      return true;
    },
  );
}

/** Says what was done; failures have a list. @param {string} verb @param {any} told @param {string[]} names in the order of the results */
function showResults(verb, told, names) {
  say(`${verb} ${count(told.succeeded, "agent")}`);
  if (told.failed === 0) return;
  const rows = told.results.map((/** @type {any} */ each) => h("li", null, h("span", { class: `tag ${each.error ? "bad" : "good"}` }, each.status), " ", each.id && !each.error && each.agent ? linkTo(["agents", each.id], words(names[each.index])) : words(names[each.index]), each.error && [": ", words(each.error.message)]));
  openDialog(`${verb} ${told.succeeded} of ${count(told.total, "agent")}`, h("ul", { class: "plain" }, rows));
}
