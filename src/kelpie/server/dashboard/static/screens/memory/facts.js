// Facts that an agent learned: what is true now, what was true before, and since when.

import { count, day, deleteButton, empty, filters, get, h, keep, labelled, note, pagedTable, percent, replace, tag, time, words } from "../../core/index.js";

const PAGE = 50;

/** @param {import("../../core/screen.js").Screen} screen @param {import("../memory.js").Agent} agent @param {Element} place */
export async function factsPart(screen, agent, place) {
  const base = `v1/agents/${agent.id}/facts`;
  const status = await screen.get(`${base}/status`);
  const chosen = { entity: screen.asked("entity"), at: screen.asked("at"), current: screen.asked("current") };
  const table = pagedTable(screen, {
    label: "Facts",
    columns: [
      ["Fact", (row) => words(row.statement || `${row.subject} ${row.attribute} ${row.value}`), "text"],
      ["About", (row) => words(row.subject)],
      ["State", (row) => (row.current ? tag("true now", "good") : tag(row.superseded_by ? "replaced" : "past")), "short"],
      ["True from", (row) => day(row.valid_from), "short"],
      ["Until", (row) => (row.valid_until ? day(row.valid_until) : "now"), "short"],
      ["Learned", (row) => time(row.recorded_at), "short"],
      ["Confidence", (row) => percent(row.confidence), "num"],
      ["Seen", (row) => count(row.seen, "time"), "num"],
      ["Actions", (row) => deleteButton(place, "fact", ["This deletes “", words(row.statement), "”."], `${base}/${row.id}`, async () => { await table.reload(); }), "actions"],
    ],
    none: empty("No facts here.", h("p", null, status.active ? "The agent learns facts from its conversations after a while." : "The agent learns no facts yet. Enable it with the field kelpie_facts of the agent; docs/facts.md says how.")),
    load: async (offset, signal) => {
      const rows = await get(base, { entity: chosen.entity, at: chosen.at ? new Date(chosen.at).toISOString() : null, current: chosen.current, limit: PAGE, offset }, signal);
      return { rows, next: rows.length === PAGE ? (offset ?? 0) + PAGE : null };
    },
  });
  const apply = () => {
    keep(chosen);
    void screen.attempt(() => table.restart());
  };
  const entity = h("input", { type: "search", value: chosen.entity, on: { change: () => { chosen.entity = entity.value.trim(); apply(); } } });
  const at = h("input", { type: "datetime-local", value: chosen.at, on: { change: () => { chosen.at = at.value; apply(); } } });
  const now = h("input", { type: "checkbox", checked: chosen.current !== "", on: { change: () => { chosen.current = now.checked ? "true" : ""; apply(); } } });
  replace(
    place,
    note(`${count(status.facts, "fact")}. `, status.active ? ["Last looked for: ", time(status.last_at), status.last_error && [". The last attempt failed: ", words(status.last_error)]] : "Learning is off for this agent."),
    filters(labelled("About", entity), labelled("True at (your time)", at, "when"), labelled("Only what is true now", now, "inline")),
    table.node,
  );
  await table.reload();
}
