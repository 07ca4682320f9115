// One search in passages, messages and facts of an agent, with the reason of every match.

import {
  card, chatPath, choice, count, empty, failure, h, hint, keep, labelled, link, note, post, replace, side, tag,
  tagList, time, words,
} from "../../core/index.js";

const FOUND = 10;
const CHARS = 600;
/** @type {{[reason: string]: string}} */
const REASONS = { words: "the same words", vector: "a similar meaning", neighbour: "stands beside a match", date: "the date in the question" };
const MODES = [["hybrid", "Words and meaning"], ["fts", "Words only"], ["vector", "Meaning only"]];

/** @typedef {{text: string, matched: string[] | undefined, ranks: Child, at: string | null, tags?: string[], address?: string | null}} Match */
/** @typedef {import("../../core/dom.js").Child} Child */

/** @param {import("../../core/screen.js").Screen} screen @param {import("../memory.js").Agent} agent @param {Element} place */
export async function searchPart(screen, agent, place) {
  const asked = { query: screen.asked("query"), mode: screen.route.query.get("mode") ?? "hybrid" };
  const query = h("input", { type: "search", value: asked.query, required: true });
  const found = h("div", { class: "screen", "aria-live": "polite" });
  let latest = 0;
  const search = async () => {
    const mine = (latest += 1);
    asked.query = query.value.trim();
    keep(asked);
    if (!asked.query) return;
    found.setAttribute("aria-busy", "true");
    const results = await Promise.allSettled([passages(agent.id, asked, screen.signal), messages(agent.id, asked, screen.signal), facts(agent.id, asked, screen.signal)]);
    if (mine !== latest || screen.signal.aborted) return;
    found.removeAttribute("aria-busy");
    const titles = ["Passages", "Messages", "Facts"];
    replace(found, results.map((each, which) => card(titles[which] ?? "", each.status === "rejected" ? failure(each.reason) : listOf(each.value.matches, each.value.note))));
  };
  replace(
    place,
    h("form", { class: "filters", role: "search", on: { submit: (/** @type {SubmitEvent} */ event) => { event.preventDefault(); void screen.attempt(search); } } }, labelled("Search the memory for", query, "wide"), choice("By", MODES, asked.mode, (mode) => (asked.mode = mode)), h("button", { type: "submit", class: "primary" }, "Search")),
    found,
  );
  if (asked.query) await search();
  else replace(found, empty("Search as the agent does.", "Each match says why it was found: the same words, a similar meaning, a date, or a neighbour that matched."));
}

/** @param {Match[]} matches @param {string} lacking */
function listOf(matches, lacking) {
  const rows = matches.map((each) => h("li", { class: "match" }, side((each.matched ?? []).map((why) => tag(REASONS[why] ?? why, "good")), hint(each.ranks), tagList(each.tags), each.at && time(each.at), each.address && h("a", { href: each.address }, "Open")), words(each.text.length > CHARS ? `${each.text.slice(0, CHARS)}…` : each.text)));
  return [lacking && note(words(lacking)), rows.length ? [note(count(rows.length, "match", "matches")), h("ol", { class: "matches" }, rows)] : note("Nothing matches.")];
}

/** @typedef {{query: string, mode: string}} Asked */

/** @param {string} id @param {Asked} asked @param {AbortSignal} signal */
async function passages(id, asked, signal) {
  const rows = await post("v1/passages/search", { agent_id: id, query: asked.query, search_mode: asked.mode, limit: FOUND }, { signal });
  const matches = rows.map((/** @type {any} */ each) => ({ text: each.passage.text, matched: each.metadata?.matched, ranks: ranks(each.metadata?.fts_rank, each.metadata?.vector_rank), at: each.passage.created_at, tags: each.passage.tags }));
  return { matches, note: String(rows[0]?.metadata?.search_note ?? "") };
}

/** @param {string} id @param {Asked} asked @param {AbortSignal} signal */
async function messages(id, asked, signal) {
  const rows = await post("v1/messages/search", { agent_id: id, query: asked.query, search_mode: asked.mode, limit: FOUND }, { signal });
  const matches = rows.map((/** @type {any} */ each) => ({ text: `${String(each.message_type).replace("_message", "")}: ${each.content ?? ""}`, matched: each.matched, ranks: null, at: each.created_at, address: link(chatPath(id, each.conversation_id)) }));
  return { matches, note: "" };
}

/** @param {string} id @param {Asked} asked @param {AbortSignal} signal */
async function facts(id, asked, signal) {
  const told = await post(`v1/agents/${id}/facts/search`, { query: asked.query, mode: asked.mode, limit: FOUND }, { signal });
  const matches = told.results.map((/** @type {any} */ each) => ({ text: each.statement, matched: each.relevance ? each.relevance.matched : ["replaced a match"], ranks: each.relevance && ranks(each.relevance.words_rank, each.relevance.meaning_rank), at: each.recorded_at }));
  return { matches, note: String(told.lacking ?? "") };
}

/** @param {number | null | undefined} byWords @param {number | null | undefined} byMeaning */
function ranks(byWords, byMeaning) {
  return [byWords ? `place ${byWords} by words` : "", byMeaning ? `place ${byMeaning} by meaning` : ""].filter(Boolean).join(", ");
}
