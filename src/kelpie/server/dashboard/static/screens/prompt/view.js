// A prompt as a person reads it: where the tokens go, every part in the order the model read them, what compaction took
// away, and the difference to another prompt.

import {
  card, count, diffView, get, h, hint, longText, moment, note, number, partsBar, replace, shortened, tag, tokens,
  visible, words,
} from "../../core/index.js";

/** @typedef {{kind: string, label: string, tokens: number, text: string}} Part */
/** @typedef {{parts: Part[], options: {[name: string]: unknown}, left_out: number, context_window: number | null, prompt_tokens: number | null, why_not: string | null, agent_id: string, model: string | null}} Prompt */

/** @type {{[kind: string]: string}} */
const KINDS = { instructions: "Instructions", memory: "Memory blocks", tool: "Tools", summary: "Summary of removed messages", user: "Messages of people", assistant: "Answers of the agent", result: "Results of tools" };
const REMOVED_LOOKED_AT = 200;
const FOUND_BY_CHARS = 120;

/** @param {Prompt} prompt */
export function promptView(prompt) {
  if (prompt.why_not) return h("div", { class: "empty" }, h("p", null, prompt.why_not));
  const sum = prompt.parts.reduce((all, each) => all + each.tokens, 0);
  const bars = Object.entries(KINDS)
    .map(([kind, label]) => {
      const of = prompt.parts.filter((each) => each.kind === kind);
      return { label, value: of.reduce((all, each) => all + each.tokens, 0), note: count(of.length, "part") };
    })
    .filter((each) => each.value > 0);
  const counted = prompt.prompt_tokens ? ` The provider counted ${tokens(prompt.prompt_tokens)}.` : "";
  return h(
    "div",
    { class: "screen" },
    card("Where the tokens go", note(`About ${tokens(sum)} of a window of ${tokens(prompt.context_window)}.${counted}`), partsBar(bars, { unit: "tokens", whole: prompt.context_window, wholeLabel: "free" })),
    card(`All ${number(prompt.parts.length)} parts, in the order the model reads them`, prompt.left_out > 0 && note(`${count(prompt.left_out, "more part")} are not shown.`), h("div", { class: "parts" }, prompt.parts.map((each) => partView(each, sum)))),
    card("Settings of the call", longText(JSON.stringify(prompt.options, null, 2), { label: "Settings" })),
  );
}

/** @param {Part} part @param {number} sum */
function partView(part, sum) {
  const width = sum ? Math.max((part.tokens / sum) * 100, 0.5) : 0;
  const bar = h("span", { class: "token-bar", "aria-hidden": "true" }, h("span"));
  /** @type {HTMLElement} */ (bar.firstElementChild).style.width = `${width}%`;
  const body = h("div");
  const details = h("details", { on: { toggle: () => {
    if (details.open && !body.firstChild) replace(body, longText(part.text, { label: part.label }));
  } } }, h("summary", { class: "part" }, h("span", { class: `tag kind-${part.kind}` }, KINDS[part.kind] ?? part.kind), h("span", { class: "part-name" }, words(part.label), " ", hint(words(part.text.slice(0, 90).replace(/\s+/g, " ")))), bar, h("span", { class: "num" }, tokens(part.tokens))), body);
  return details;
}

/** The whole prompt as one text, for comparisons. @param {Prompt} prompt */
export function promptText(prompt) {
  return prompt.parts.map((each) => `== ${KINDS[each.kind] ?? each.kind}: ${visible(each.label)} ==\n${each.text}`).join("\n\n");
}

/** @param {Prompt} before @param {Prompt} after @param {string} caption */
export function comparison(before, after, caption) {
  const missing = before.why_not ?? after.why_not;
  return card(caption, missing ? note(missing) : diffView(promptText(before), promptText(after)));
}

/**
 * What compaction took out of the prompt: its figures, and the messages that the model no longer sees.
 * @param {Prompt} prompt
 * @param {string | null} conversation
 * @param {string | null} until only messages before this moment
 * @param {AbortSignal} signal
 */
export async function compaction(prompt, conversation, until, signal) {
  const summary = prompt.parts.find((each) => each.kind === "summary");
  if (!summary) return card("Compaction", note("Nothing was removed: this prompt has the whole conversation."));
  const path = conversation ? `v1/conversations/${conversation}/messages` : `v1/agents/${prompt.agent_id}/messages`;
  const found = await get(path, { limit: REMOVED_LOOKED_AT, order: "desc", conversation_id: conversation ? null : "default" }, signal);
  const shown = prompt.parts.filter((each) => each !== summary).map((each) => each.text).join("\n");
  const removed = found.filter((/** @type {any} */ each) => {
    const text = textOf(each);
    return text && (!until || each.date <= until) && each.message_type !== "system_message" && !shown.includes(text.slice(0, FOUND_BY_CHARS)) && !shown.includes(JSON.stringify(text.slice(0, FOUND_BY_CHARS)).slice(1, -1));
  });
  const figures = statsOf(summary.text);
  return card("Compaction",
    figures && h("p", null, `The last compaction went from ${tokens(figures.context_tokens_before)} to ${tokens(figures.context_tokens_after)}, and from ${count(figures.messages_count_before, "message")} to ${number(figures.messages_count_after)}.`),
    note(`${count(removed.length, "message")} of the last ${number(found.length)} are no longer in the prompt. The agent can still find them by searching.`),
    h("ul", { class: "plain removed" }, removed.slice(-100).map((/** @type {any} */ each) => h("li", null, tag(each.message_type.replace("_message", "").replace("_", " ")), " ", hint(moment(each.date)), " ", words(shortened(textOf(each), 200))))),
  );
}

/** @param {any} message @returns {string} */
function textOf(message) {
  const content = message.content ?? message.tool_return ?? message.reasoning ?? "";
  return typeof content === "string" ? content : JSON.stringify(content);
}

/** @param {string} text @returns {any} */
function statsOf(text) {
  try {
    return JSON.parse(text).compaction_stats ?? null;
  } catch {
    return null; // a summary of another server has no figures
  }
}
