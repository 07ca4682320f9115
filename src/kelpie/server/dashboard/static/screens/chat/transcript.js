// <kelpie-transcript>: what was said in a conversation. It takes stored messages and frames of a stream in any order and
// shows each thing once. It keeps a bounded number of entries: older ones come back from the server.

import { cost, count, duration, element, failure, h, linkTo, reasonText, replace, tokens } from "../../core/index.js";
import { Entry, TextEntry, ToolEntry } from "./entries.js";

const ENTRIES_MAX = 400;
const ENTRIES_HARD_MAX = 2000; // also while a person reads further up
const NEAR_PX = 120;
const BY_HAND_MS = 400;

/** @type {{[type: string]: {kind: "user" | "assistant" | "reasoning" | "summary" | "note", who: string, field: string}}} */
const TEXTS = {
  user_message: { kind: "user", who: "You", field: "content" },
  assistant_message: { kind: "assistant", who: "Agent", field: "content" },
  reasoning_message: { kind: "reasoning", who: "Reasoning", field: "reasoning" },
  hidden_reasoning_message: { kind: "note", who: "Hidden reasoning", field: "hidden_reasoning" },
  summary_message: { kind: "summary", who: "Summary", field: "summary" },
};

export class Transcript extends HTMLElement {
  /** @type {Map<string, Entry>} */
  #entries = new Map();
  #list = h("div", { class: "entries", role: "log", "aria-label": "Conversation", "aria-live": "off" });
  #earlier = h("button", { type: "button", hidden: true }, "Show earlier messages");
  #newest = h("button", { type: "button", class: "newest", hidden: true }, "Jump to the newest");
  #scroller = h("div", { class: "chat-scroller", tabindex: "0", role: "region", "aria-label": "Messages" });
  #pinned = true;
  #byHandAt = -Infinity;
  /** Called with a tool entry that waits for a person. @type {(entry: ToolEntry, approve: boolean, reason: string) => Promise<void>} */
  answer = async () => {};
  /** Loads messages before the oldest. @type {() => Promise<void>} */
  loadEarlier = async () => {};
  /** The oldest stored message that is shown. @type {string | null} */
  oldest = null;

  connectedCallback() {
    if (this.#scroller.isConnected) return;
    replace(this.#scroller, this.#earlier, this.#list);
    replace(this, this.#scroller, this.#newest);
    this.#earlier.addEventListener("click", async () => {
      this.#earlier.disabled = true;
      const from = this.#scroller.scrollHeight;
      await this.loadEarlier().finally(() => (this.#earlier.disabled = false));
      this.#scroller.scrollTop += this.#scroller.scrollHeight - from;
    });
    this.#newest.addEventListener("click", () => this.toNewest());
    const byHand = () => (this.#byHandAt = performance.now());
    for (const event of ["wheel", "touchmove", "keydown", "pointerdown", "pointermove"]) this.#scroller.addEventListener(event, byHand, { passive: true });
    this.#scroller.addEventListener("scroll", () => {
      const near = this.#scroller.scrollHeight - this.#scroller.scrollTop - this.#scroller.clientHeight < NEAR_PX;
      if (near) this.#pinned = true;
      else if (performance.now() - this.#byHandAt < BY_HAND_MS) this.#pinned = false; // content that grows also moves it away
      this.#newest.hidden = this.#pinned;
    }, { passive: true });
    new ResizeObserver(() => this.#follow()).observe(this.#list);
  }

  /** Stays at the beginning: for a record that is complete. */
  rest() {
    this.#pinned = false;
  }

  toNewest() {
    this.#pinned = true;
    this.#follow();
  }

  get isEmpty() {
    return this.#entries.size === 0;
  }

  /** Messages of a page of the server, the oldest first. @param {any[]} messages @param {{before?: boolean, more: boolean}} how */
  page(messages, { before = false, more }) {
    const first = messages[0];
    if (first && (before || this.oldest === null)) this.oldest = first.id;
    if (before) {
      const place = this.#list.firstChild;
      const fresh = document.createDocumentFragment();
      for (const message of messages) this.#put(message, true, fresh);
      this.#list.insertBefore(fresh, place);
    } else {
      for (const message of messages) this.#put(message, true, this.#list);
    }
    if (before || !more || this.#earlier.hidden) this.#earlier.hidden = !more;
    if (!before) this.#trim();
  }

  /** A frame of a stream. @param {any} frame */
  frame(frame) {
    if (frame.kelpie_abandoned) this.#drop((entry) => entry.messageId === frame.kelpie_abandoned && entry.kind !== "user");
    const kind = frame.message_type;
    if (kind === "usage_statistics") this.#usage(frame);
    else if (kind === "stop_reason") this.#stopped(frame.stop_reason);
    else if (kind === "error_message" || frame.error_type) this.note("error", failure(new Error(frame.message ?? frame.detail ?? "The turn failed.")));
    else if (kind && kind !== "ping") this.#put(frame, false, this.#list);
    this.#trim();
  }

  /** What a person just said, or said before this page was open. @param {string} key @param {unknown} content @param {string | null} runId */
  said(key, content, runId = null) {
    if (this.#entries.has(key)) return;
    const entry = new TextEntry("user", "You");
    entry.runId = runId;
    entry.set(content);
    this.#add(key, entry, this.#list);
  }

  /** Something that is no message. @param {string} key @param {Node} node */
  note(key, node) {
    const name = `note:${key}:${this.runId}`;
    this.#entries.get(name)?.node.remove();
    const entry = new Entry("note", "Note");
    replace(entry.body, node);
    entry.runId = this.runId;
    this.#add(name, entry, this.#list);
  }

  /** The run that is followed. */
  runId = "";

  /** Calls that wait for a person. @param {Set<string>} callIds */
  waiting(callIds) {
    for (const entry of this.#entries.values()) {
      if (!(entry instanceof ToolEntry) || entry.complete) continue;
      if (!callIds.has(entry.callId)) entry.settle();
      else if (!entry.isWaiting) entry.ask((approve, reason) => this.answer(entry, approve, reason));
    }
  }

  clear() {
    this.#entries.clear();
    replace(this.#list);
    this.oldest = null;
    this.#earlier.hidden = true;
    this.#pinned = true;
  }

  /** @param {any} message @param {boolean} whole @param {Element | DocumentFragment} place */
  #put(message, whole, place) {
    const text = TEXTS[message.message_type];
    if (message.run_id) this.runId = whole ? this.runId : message.run_id;
    if (text) this.#text(message, text, whole, place);
    else if (message.message_type === "tool_call_message" || message.message_type === "approval_request_message") {
      const calls = Array.isArray(message.tool_calls) ? message.tool_calls : [message.tool_call ?? message.tool_calls].filter(Boolean);
      for (const call of calls) this.#call(message, call, whole, place);
    } else if (message.message_type === "tool_return_message") {
      for (const result of message.tool_returns ?? [message]) this.#result({ ...result, id: message.id }, place);
    }
  }

  /** @param {any} message @param {typeof TEXTS[string]} text @param {boolean} whole @param {Element | DocumentFragment} place */
  #text(message, text, whole, place) {
    const key = message.otid ?? `${message.id}:${message.message_type}`;
    if (whole && text.kind === "user" && message.run_id) this.#drop((entry, name) => name.startsWith(`input:${message.run_id}:`));
    let entry = this.#entries.get(key);
    if (!(entry instanceof TextEntry)) {
      entry = new TextEntry(text.kind, text.who);
      this.#add(key, entry, place);
    }
    if (!(entry instanceof TextEntry) || (entry.complete && !whole)) return;
    const content = message[text.field];
    if (whole || Array.isArray(content)) entry.set(content ?? "");
    else entry.add(String(content ?? ""));
    entry.about(message);
  }

  /** @param {any} message @param {any} call @param {boolean} whole @param {Element | DocumentFragment} place */
  #call(message, call, whole, place) {
    const key = `call:${message.id}:${call.tool_call_id}`;
    let entry = this.#entries.get(key);
    if (!(entry instanceof ToolEntry)) {
      entry = new ToolEntry(String(call.tool_call_id));
      this.#add(key, entry, place);
    }
    if (!(entry instanceof ToolEntry) || entry.stored) return;
    entry.stored = whole;
    entry.call(call, whole);
    entry.about(message);
  }

  /** @param {any} result @param {Element | DocumentFragment} place */
  #result(result, place) {
    const found = [...this.#entries.values()].filter((each) => each instanceof ToolEntry && each.callId === result.tool_call_id).pop();
    let entry = found instanceof ToolEntry ? found : null;
    if (!entry) {
      entry = new ToolEntry(String(result.tool_call_id));
      entry.call({ name: result.name ?? "tool" }, true);
      this.#add(`call:${result.id}:${result.tool_call_id}`, entry, place);
    }
    entry.returned(result);
  }

  /** @param {any} usage */
  #usage(usage) {
    const facts = [tokens(usage.total_tokens), cost(usage.kelpie_cost_usd), count(usage.step_count, "step")];
    if (this.startedAt) facts.push(duration(performance.now() - this.startedAt));
    this.note("usage", h("p", { class: "hint usage" }, `${facts.join(", ")}. `, this.runId && linkTo(["runs", this.runId], "Show the run")));
  }

  startedAt = 0;

  /** @param {string} reason */
  #stopped(reason) {
    if (reason !== "end_turn" && reason !== "requires_approval" && reason !== "tool_rule") this.note("stop", h("p", { class: "hint" }, `The turn ended: ${reasonText(reason)}.`));
  }

  /** @param {string} key @param {Entry} entry @param {Element | DocumentFragment} place */
  #add(key, entry, place) {
    this.#entries.set(key, entry);
    place.append(entry.node);
  }

  /** @param {(entry: Entry, key: string) => boolean} which */
  #drop(which) {
    for (const [key, entry] of this.#entries) {
      if (which(entry, key)) {
        entry.discard();
        this.#entries.delete(key);
      }
    }
  }

  /** Removes the oldest entries beyond the limit; the server still has them. */
  #trim() {
    if (this.#entries.size <= (this.#pinned ? ENTRIES_MAX : ENTRIES_HARD_MAX)) return;
    for (const [key, entry] of this.#entries) {
      if (this.#entries.size <= ENTRIES_MAX) break;
      entry.discard();
      this.#entries.delete(key);
    }
    for (const entry of this.#entries.values()) {
      if (entry.messageId && entry.complete) {
        this.oldest = entry.messageId;
        break;
      }
    }
    this.#earlier.hidden = false;
  }

  #follow() {
    if (this.#pinned) this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }
}

customElements.define("kelpie-transcript", Transcript);

export const transcript = () => element(Transcript);
