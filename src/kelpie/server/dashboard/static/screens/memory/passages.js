// Passages: the archive of an agent, in which it searches.

import { action, ask, deleteButton, empty, h, keep, listOfWords, longText, pagedTable, pagesOf, post, replace, say, tagList, time } from "../../core/index.js";

const PAGE = 30;

/** @param {import("../../core/screen.js").Screen} screen @param {import("../memory.js").Agent} agent @param {Element} place */
export async function passagesPart(screen, agent, place) {
  const base = `v1/agents/${agent.id}/archival-memory`;
  let contains = screen.asked("contains");
  const add = async () => {
    const made = await ask(
      "New passage",
      [
        { name: "text", label: "Text", kind: "textarea", rows: 6, required: true },
        { name: "tags", label: "Tags", hint: "Separated by commas." },
      ],
      "Add passage",
      (values) => post(base, { text: values.text, tags: listOfWords(values.tags) }),
    );
    if (!made) return;
    say("Added a passage");
    await table.restart();
  };
  const table = pagedTable(screen, {
    label: "Passages",
    columns: [
      ["Text", (row) => longText(row.text, { shown: 400, label: `Passage ${String(row.id).slice(-12)}` }), "wide"],
      ["Tags", (row) => tagList(row.tags)],
      ["Added", (row) => time(row.created_at), "short"],
      ["Actions", (row) => deleteButton(place, "passage", "The agent will not find it again.", `${base}/${row.id}`, async () => { await table.reload(); }), "actions"],
    ],
    none: empty("No passages here.", "An agent stores passages with its tool archival_memory_insert; you can add some as well."),
    load: pagesOf(base, () => ({ ascending: false, search: contains }), { limit: PAGE }),
  });
  const search = h("input", { type: "search", value: contains, placeholder: "Only passages that contain", "aria-label": "Only passages that contain", on: { change: () => {
    contains = search.value.trim();
    keep({ contains });
    void screen.attempt(() => table.restart());
  } } });
  replace(place, h("div", { class: "head" }, search, action(place, "New passage", add)), table.node);
  await table.reload();
}
