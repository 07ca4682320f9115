// Working memory: values under keys, with versions and expiry.

import { put } from "../../core/api.js";
import { ask } from "../../core/dialog.js";
import { h, replace, words } from "../../core/dom.js";
import { number } from "../../core/format.js";
import { empty, say } from "../../core/notice.js";
import { action, deleteButton, note, pagesOf, parsedJson, side } from "../../core/parts.js";
import { pagedTable } from "../../core/table.js";
import { time } from "../../core/time.js";

const PAGE = 50;

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
  const table = pagedTable({
    label: "Working memory",
    signal: screen.signal,
    columns: [
      { label: "Key", cell: (/** @type {any} */ row) => h("code", null, words(row.key)) },
      { label: "Value", cell: (row) => words(JSON.stringify(row.value).slice(0, 300)) },
      { label: "Version", class: "num", cell: (row) => number(row.version) },
      { label: "Changed", cell: (row) => time(row.updated_at) },
      { label: "Expires", cell: (row) => (row.expires_at ? time(row.expires_at) : "never") },
      { label: "Actions", cell: (row) => side(action(place, "Change", () => set(row), { label: `Change ${row.key}` }), deleteButton(place, "entry", ["This deletes ", words(row.key), "."], `${base}/${encodeURIComponent(row.key)}`, async () => { await table.reload(); }, { label: `Delete ${row.key}`, query: { if_version: row.version } })) },
    ],
    none: empty("The working memory is empty.", h("p", null, "Tools and clients keep values here between turns: counters, lists, state of a task.")),
    load: pagesOf(base, {}, PAGE, "key"),
  });
  replace(place, h("div", { class: "head" }, note("Values under keys. They are not part of the prompt; tools read and write them."), action(place, "New entry", () => set())), table.node);
  screen.onReturn(() => table.reload());
  await table.reload();
}
