// Folders and files of an agent.

import {
  action, ask, bytes, card, confirm, count, deleteButton, empty, h, hint, longText, note, pagedTable, pagesOf,
  partHead, patch, post, replace, say, side, stateTag, time, words,
} from "../../core/index.js";

const FOLDERS = 50;
const UPLOAD_MS = 300_000;

/** @typedef {import("../../core/screen.js").Screen} Screen */

/** @param {Screen} screen @param {import("../memory.js").Agent} agent @param {Element} place */
export async function filesPart(screen, agent, place) {
  /** @type {{node: HTMLElement, reload: () => Promise<void>}[]} */
  let shown = [];
  await showFolders(screen, agent, place, (made) => (shown = made));
  screen.repeat(async () => {
    if (place.querySelector(".tag.warn")) await Promise.all(shown.map((each) => each.reload()));
  }, 2000);
}

/**
 * @param {Screen} screen
 * @param {import("../memory.js").Agent} agent
 * @param {Element} place
 * @param {(made: {node: HTMLElement, reload: () => Promise<void>}[]) => void} made
 */
async function showFolders(screen, agent, place, made) {
  const attached = await screen.get(`v1/agents/${agent.id}/folders`, { limit: FOLDERS });
  const opened = await screen.get(`v1/agents/${agent.id}/files`, { limit: 100, is_open: true });
  const again = () => showFolders(screen, agent, place, made);
  const attach = async () => {
    const known = await screen.get("v1/folders/", { limit: 200 });
    const mine = new Set(attached.map((/** @type {any} */ each) => each.id));
    const offered = known.filter((/** @type {any} */ each) => !mine.has(each.id)).map((/** @type {any} */ each) => ({ value: each.id, label: each.name }));
    const done = await ask(
      "Attach folder",
      [
        { name: "folder", label: "Folder", kind: "select", options: [{ value: "", label: "A new folder" }, ...offered] },
        { name: "name", label: "Name of the new folder", hint: "Only for a new folder." },
      ],
      "Attach folder",
      async (values) => {
        if (!values.folder && !String(values.name).trim()) throw new RangeError("Give the new folder a name.");
        const id = values.folder || (await post("v1/folders/", { name: values.name })).id;
        await patch(`v1/agents/${agent.id}/folders/attach/${id}`);
        return true;
      },
    );
    if (!done) return;
    say("Attached the folder");
    await again();
  };
  const shown = attached.map((/** @type {any} */ folder) => folderCard(screen, agent, place, folder, again));
  made(shown);
  replace(
    place,
    partHead("The agent can open and search the files of its folders.", action(place, "Attach folder", attach)),
    attached.length ? shown.map((/** @type {any} */ each) => each.node) : empty("This agent has no folders.", "Attach a folder, then upload files to it."),
    opened.files.length > 0 && card("Open files", opened.files.map((/** @type {any} */ file) => h("details", null, h("summary", null, words(file.file_name), " ", hint(file.start_line ? `from line ${file.start_line}` : "")), longText(file.visible_content ?? "", { label: file.file_name }), side(action(place, "Close", async () => { await patch(`v1/agents/${agent.id}/files/${file.file_id}/close`); await again(); }))))),
  );
  await Promise.all(shown.map((/** @type {any} */ each) => each.reload()));
}

/** @param {Screen} screen @param {import("../memory.js").Agent} agent @param {Element} place @param {any} folder @param {() => Promise<void>} again */
function folderCard(screen, agent, place, folder, again) {
  const table = pagedTable(screen, {
    label: `Files in ${folder.name}`,
    columns: [
      ["File", (row) => words(row.file_name), "text"],
      ["State", (row) => [stateTag(row.processing_status === "completed" ? "completed" : row.processing_status === "error" ? "failed" : "running"), row.error_message && [" ", words(String(row.error_message).slice(0, 300))]]],
      ["Size", (row) => bytes(row.file_size), "num"],
      ["Passages", (row) => count(row.total_chunks, "passage"), "num"],
      ["Added", (row) => time(row.created_at), "short"],
      ["Actions", (row) => side(action(place, "Open", async () => { await patch(`v1/agents/${agent.id}/files/${row.id}/open`); say(`Opened ${row.file_name}`); await again(); }, { label: `Open ${row.file_name}` }), deleteButton(place, "file", ["This deletes ", words(row.file_name), " for all agents."], `v1/folders/${folder.id}/${row.id}`, async () => { await table.reload(); }, { label: `Delete ${row.file_name}` })), "actions"],
    ],
    load: pagesOf(`v1/folders/${folder.id}/files`),
  });
  const upload = async () => {
    const made = await ask("Upload file", [{ name: "file", label: "File", kind: "file", required: true }], "Upload file", (values) => {
      const form = new FormData();
      form.append("file", /** @type {File} */ (values.file));
      return post(`v1/folders/${folder.id}/upload`, form, { patienceMs: UPLOAD_MS });
    });
    if (!made) return;
    say(`Uploaded ${made.file_name ?? "the file"}`);
    await table.restart();
  };
  const detach = async () => {
    if (!(await confirm("Detach folder", h("span", null, "The agent no longer sees the files of ", words(folder.name), ". The folder stays."), "Detach folder", () => patch(`v1/agents/${agent.id}/folders/detach/${folder.id}`)))) return;
    say(`Detached ${folder.name}`);
    await again();
  };
  const node = card(["Folder ", words(folder.name)], folder.description && note(words(folder.description)), side(action(place, "Upload file", upload), action(place, "Detach", detach)), table.node);
  return { node, reload: table.reload };
}
