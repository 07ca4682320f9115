// Memory blocks of an agent: their text, who changed it and when, what changed, and going back.

import {
  action, agentLink, ApiError, ask, card, code, confirm, count, diffView, empty, factList, get, h, hint, keep,
  labelled, linkTo, longText, note, number, pagedTable, pagesOf, partHead, patch, post, replace, say, shortened,
  shortId, side, tag, time, words,
} from "../../core/index.js";

/** @typedef {import("../../core/screen.js").Screen} Screen */
/** @typedef {import("../memory.js").Agent} Agent */

const VERSIONS = 20;
const CHOICES = 200;

/** @param {Screen} screen @param {Agent} agent @param {Element} place */
export async function blockList(screen, agent, place) {
  const blocks = await screen.get(`v1/agents/${agent.id}/core-memory/blocks`, { limit: 200 });
  const again = () => blockList(screen, agent, place);
  const create = action(place, "New block", async () => {
    const made = await ask(
      "New block",
      [
        { name: "label", label: "Label", required: true, hint: "The agent knows the block by it, such as `plans`." },
        { name: "description", label: "Description", hint: "Tells the agent what belongs here." },
        { name: "value", label: "Text", kind: "textarea", rows: 5 },
      ],
      "Create block",
      async (values) => {
        const block = await post("v1/blocks/", { label: values.label, value: values.value, ...(values.description ? { description: values.description } : {}) });
        await patch(`v1/agents/${agent.id}/core-memory/blocks/attach/${block.id}`);
        return block;
      },
    );
    if (!made) return;
    say(`Created block ${made.label}`);
    await again();
  });
  const shown = blocks.map((/** @type {any} */ block) =>
    h(
      "section",
      { class: "card" },
      h("div", { class: "head" }, h("h2", null, linkTo(["memory", agent.id, "blocks", block.id], words(block.label))), side(block.read_only && tag("read only"), hint(sizeOf(block)), action(place, "Edit", async () => (await editBlock(block)) && (await again()), { label: `Edit block ${block.label}` }))),
      block.description && note(words(shortened(block.description, 400))),
      longText(block.value, { label: `Block ${block.label}`, shown: 4000 }),
    ),
  );
  replace(place, partHead("The agent sees these texts in every prompt and may change them.", create), shown.length ? shown : empty("This agent has no memory blocks.", "Create one to give it something to remember in every turn."));
}

/** @param {Screen} screen @param {Agent} agent @param {Element} place @param {string} id */
export async function blockPage(screen, agent, place, id) {
  const [block, agents] = await Promise.all([screen.get(`v1/blocks/${id}`), screen.get(`v1/blocks/${id}/agents`, { limit: 20, include: "agent.tags" })]);
  const versions = await screen.get(`v1/blocks/${id}/history`, { limit: CHOICES });
  const newest = versions[0]?.version ?? null;
  const again = () => blockPage(screen, agent, place, id);
  /** @param {number} version */
  const restore = async (version) => {
    const done = await confirm("Restore version", `The text of version ${number(version)} becomes a new version of the block. Nothing is lost.`, "Restore version", () => post(`v1/blocks/${id}/rollback`, { version, expected_version: newest }));
    if (!done) return;
    say(`Restored version ${number(version)}`);
    await again();
  };
  const table = pagedTable(screen, {
    label: "Versions",
    columns: [
      ["Version", (row) => `Version ${number(row.version)}`, "short"],
      ["When", (row) => (row.damaged ? tag("damaged", "bad") : time(row.created_at)), "short"],
      ["By", authorOf],
      ["Size", (row) => count(row.chars, "character"), "num"],
      ["Actions", (row) => side(row.version > 1 && action(place, "What changed", async () => { await compare(row.version - 1, row.version); shown.scrollIntoView({ block: "nearest" }); }, { label: `What changed in version ${row.version}` }), row.version !== newest && !row.damaged && action(place, "Restore", () => restore(row.version), { label: `Restore version ${row.version}` })), "actions"],
    ],
    load: pagesOf(`v1/blocks/${id}/history`, {}, { limit: VERSIONS, key: "version", cursor: "before" }),
  });
  const shown = h("div");
  const select = (/** @type {() => void} */ changed) => h("select", { on: { change: changed } }, versions.map((/** @type {any} */ each) => h("option", { value: each.version }, `Version ${number(each.version)}`)));
  const chosen = () => void screen.attempt(() => compare(Number(from.value), Number(to.value)));
  const [from, to] = [select(chosen), select(chosen)];
  /** @param {number} before @param {number} after */
  const compare = async (before, after) => {
    [from.value, to.value] = [String(before), String(after)];
    keep({ from: before, to: after });
    const [old, now] = await Promise.all([before, after].map((version) => screen.get(`v1/blocks/${id}/history/${version}`)));
    replace(shown, diffView(String(old.value ?? ""), String(now.value ?? "")));
  };
  replace(
    place,
    h("div", { class: "head" }, h("h2", null, "Block ", words(block.label)), side(hint(sizeOf(block)), action(place, "Edit", async () => (await editBlock(block)) && (await again()), { class: "primary" }))),
    h("section", { class: "card" }, longText(block.value, { label: `Block ${block.label}` }), factList([["Id", code(block.id)], ["Description", words(block.description ?? "none")], ["Attached to", agents.map((/** @type {any} */ each) => [agentLink(each.id, "memory", each.name), " "])], ["Read only", block.read_only ? "yes: the agent cannot change it" : "no"]])),
    card("Versions", table.node),
    versions.length > 1 && card("Difference", h("div", { class: "filters" }, labelled("From", from), labelled("To", to)), shown),
  );
  await table.reload();
  if (versions.length > 1) await compare(Number(screen.route.query.get("from")) || newest - 1, Number(screen.route.query.get("to")) || newest);
}

/** @param {any} block */
async function editBlock(block) {
  const [now] = await get(`v1/blocks/${block.id}/history`, { limit: 1 });
  return ask(
    `Edit block ${block.label}`,
    [
      { name: "value", label: "Text", kind: "textarea", rows: 12, value: block.value },
      { name: "description", label: "Description", value: block.description ?? "" },
      { name: "limit", label: "Limit (characters)", kind: "number", value: block.limit },
    ],
    "Save block",
    async (values) => {
      const [latest] = await get(`v1/blocks/${block.id}/history`, { limit: 1 });
      if (latest?.version !== now?.version) throw new ApiError("The block was changed while you edited it.", { status: 409, remedy: "Copy your text, close this dialog and edit the block again: it then has the newest text." });
      await patch(`v1/blocks/${block.id}`, { value: values.value, description: values.description || undefined, limit: Number(values.limit) || undefined });
      say(`Changed block ${block.label}`);
      return true;
    },
  );
}

/** @param {any} block */
const sizeOf = (block) => `${number(String(block.value ?? "").length)} of ${number(block.limit)} characters`;

/** @param {any} row */
function authorOf(row) {
  const who = row.author?.type === "agent" && row.author.id ? ["agent ", agentLink(row.author.id, "memory")] : [row.author?.type ?? "unknown", " ", row.author?.id && h("code", { title: row.author.id }, shortId(row.author.id))];
  return h("span", null, who, row.tool && [", tool ", code(row.tool)], row.run_id && [", ", linkTo(["runs", row.run_id], "run")], row.restores && `, restores version ${number(row.restores)}`);
}
