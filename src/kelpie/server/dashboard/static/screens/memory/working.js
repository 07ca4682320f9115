// Working memory: values under keys, with versions and expiry.

import {
  action, ask, code, deleteButton, empty, number, pagedTable, pagesOf, parsedJson, partHead, put, replace, say,
  shortened, side, time, words,
} from "../../core/index.js";


/** @param {import("../../core/screen.js").Screen} screen @param {import("../memory.js").Agent} agent @param {Element} place */
export async function workingPart(screen, agent, place) {
  const base = `v1/agents/${agent.id}/working-memory`;
  /** @param {any} [entry] */
  const set = async (entry) => {
    const done = await ask(
      entry ? `Change ${entry.key}` : "New entry",
      [
        ...(entry ? [] : [{ name: "key", label: "Key", required: true }]),
        { name: "value", label: "Value (JSON)", kind: /** @type {const} */ ("textarea"), rows: 6, value: entry ? JSON.stringify(entry.value, null, 2) : "", required: true },
        { name: "ttl", label: "Expires after (seconds)", kind: /** @type {const} */ ("number"), hint: "Empty: it does not expire." },
      ],
      entry ? "Save value" : "Create entry",
      (values) => put(`${base}/${encodeURIComponent(entry?.key ?? String(values.key))}`, { value: parsedJson(values.value), ttl_seconds: Number(values.ttl) || null, if_version: entry?.version ?? 0 }),
    );
    if (!done) return;
    say(entry ? `Changed ${entry.key}` : `Created ${done.key}`);
    await table.reload();
  };
  const table = pagedTable(screen, {
    label: "Working memory",
    columns: [
      ["Key", (row) => code(row.key)],
      ["Value", (row) => words(shortened(JSON.stringify(row.value), 300)), "text"],
      ["Version", (row) => number(row.version), "num"],
      ["Changed", (row) => time(row.updated_at), "short"],
      ["Expires", (row) => (row.expires_at ? time(row.expires_at) : "never"), "short"],
      ["Actions", (row) => side(action(place, "Change", () => set(row), { label: `Change ${row.key}` }), deleteButton(place, "entry", ["This deletes ", words(row.key), "."], `${base}/${encodeURIComponent(row.key)}`, async () => { await table.reload(); }, { label: `Delete ${row.key}`, query: { if_version: row.version } })), "actions"],
    ],
    none: empty("The working memory is empty.", "Tools and clients keep values here between turns: counters, lists, state of a task."),
    load: pagesOf(base, {}, { key: "key" }),
  });
  replace(place, partHead("Values under keys. They are not part of the prompt; tools read and write them.", action(place, "New entry", () => set())), table.node);
  await table.reload();
}
