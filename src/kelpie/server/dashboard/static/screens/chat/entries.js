// Entries of a transcript: one per thing that was said, thought, called or asked. Text arrives in pieces and is drawn at
// most once per frame; as Markdown while it is short, as plain text while it is long.

import {
  button, clock, code, h, hint, linkTo, longText, markdown, moment, note, prettyJson, printed, replace, side, tag,
  visible, words,
} from "../../core/index.js";

const FORMATTED_CHARS_MAX = 20_000; // longer text is formatted when it is complete, and only if it is not much longer
const GROWING_CHARS = 4000;
const DRAW_MS = 80;

/** @typedef {import("../../core/dom.js").Child} Child */

/** What all entries have in common. */
export class Entry {
  /** @type {string | null} */
  messageId = null;
  /** @type {string | null} */
  runId = null;
  complete = false;
  #timer = 0;

  /** @param {string} kind @param {string} who */
  constructor(kind, who) {
    this.kind = kind;
    this.body = h("div", { class: "entry-body" });
    this.foot = h("div", { class: "entry-foot" });
    this.node = h("article", { class: `entry ${kind}`, "aria-label": who }, this.body, this.foot);
  }

  /** Draws after a moment, once for all that comes until then. @param {() => void} draw */
  later(draw) {
    this.#timer ||= window.setTimeout(() => {
      this.#timer = 0;
      draw();
    }, DRAW_MS);
  }

  /** Draws nothing later. */
  settled() {
    clearTimeout(this.#timer);
    this.#timer = 0;
  }

  /** Leaves the page; what was to be drawn is not. */
  discard() {
    this.settled();
    this.node.remove();
  }

  /** Who, when, and where to look for more. @param {any} message */
  about(message) {
    this.messageId = message.id ?? this.messageId;
    this.runId = message.run_id ?? this.runId;
    if (message.date) {
      replace(
        this.foot,
        h("time", { datetime: message.date, title: moment(message.date) }, clock(message.date)),
        this.kind === "assistant" && message.step_id && linkTo(["steps", message.step_id], "Why this answer?"),
        this.kind !== "user" && message.run_id && linkTo(["runs", message.run_id], "Run"),
      );
    }
  }
}

/** Text of a person, of the model, or its thoughts. */
export class TextEntry extends Entry {
  #text = "";
  #plain = h("div", { class: "plain-text" });

  /** @param {"user" | "assistant" | "reasoning" | "summary" | "note"} kind @param {string} who */
  constructor(kind, who) {
    super(kind, who);
    if (kind === "reasoning" || kind === "summary") {
      this.content = h("div", { class: "md" });
      replace(this.body, h("details", { open: kind === "reasoning" }, h("summary", null, kind === "reasoning" ? "Reasoning" : "Summary of earlier messages"), this.content));
    } else {
      this.content = h("div", { class: "md" });
      this.body.append(this.content);
    }
  }

  get text() {
    return this.#text;
  }

  /** @param {string} more */
  add(more) {
    this.#text += more;
    this.later(() => (this.#text.length > FORMATTED_CHARS_MAX ? this.#drawEnd() : this.#draw()));
  }

  /** The whole text, once it is stored. @param {unknown} content */
  set(content) {
    this.settled();
    this.complete = true;
    if (typeof content === "string") {
      this.#text = content;
      this.#draw();
      return;
    }
    const parts = Array.isArray(content) ? content : [];
    this.#text = parts.map((part) => part.text ?? "").join("\n");
    this.#draw();
    for (const part of parts) if (part.type === "image") this.content.append(picture(part.source ?? {}));
  }

  /** Of a long text that still grows, only the end is drawn: the cost does not grow with it. */
  #drawEnd() {
    if (!this.#plain.isConnected) replace(this.content, note("This message is long. Its beginning is shown again when it is complete."), this.#plain);
    this.#plain.textContent = visible(this.#text.slice(-GROWING_CHARS));
  }

  #draw() {
    if (this.#text.length > FORMATTED_CHARS_MAX) replace(this.content, longText(this.#text, { label: "Message" }));
    else if (this.kind === "user") replace(this.content, h("div", { class: "plain-text", dir: "auto" }, visible(this.#text)));
    else replace(this.content, markdown(this.#text));
    this.content.setAttribute("dir", "auto");
  }
}

/** An image of a message: shown if its data came with it, else only named, so that nothing is fetched. @param {any} source */
function picture(source) {
  const kind = String(source.media_type ?? "");
  if (source.type !== "url" && source.data && /^image\/(png|jpeg|gif|webp)$/.test(kind)) {
    return h("img", { src: `data:${kind};base64,${source.data}`, alt: "Image of this message", class: "md-image" });
  }
  return note("Image: ", words(String(source.url ?? "not shown").slice(0, 300)));
}

/** A tool call with its arguments and, later, its result. */
export class ToolEntry extends Entry {
  #arguments = "";
  #shown = h("div");
  #result = h("div");
  #state = tag("running", "warn");
  #name = h("code");
  #asked = h("div", { class: "asked" });
  #details = h("details");

  /** @param {string} callId */
  constructor(callId) {
    super("tool", "Tool call");
    this.callId = callId;
    replace(this.#details, h("summary", null, hint("Tool "), this.#name, " ", this.#state), h("div", { class: "tool-parts" }, h("p", { class: "part-label" }, "Arguments"), this.#shown, h("p", { class: "part-label" }, "Result"), this.#result));
    replace(this.body, this.#details, this.#asked);
    replace(this.#result, note("Not there yet."));
  }

  /** @param {{name?: string | null, arguments?: string | null}} call @param {boolean} whole */
  call(call, whole) {
    if (call.name) replace(this.#name, words(call.name));
    this.toolName = call.name || this.toolName || "";
    if (call.arguments) this.#arguments = whole ? call.arguments : this.#arguments + call.arguments;
    if (whole) this.#draw();
    else this.later(() => this.#draw());
  }

  /** @param {any} result */
  returned(result) {
    const failed = result.status === "error" || result.is_err;
    this.#mark(failed ? "failed" : "done", failed ? "bad" : "good");
    const text = typeof result.tool_return === "string" ? result.tool_return : JSON.stringify(result.tool_return, null, 2);
    replace(this.#result, longText(text ?? "", { label: "Result" }), printed("Output", result.stdout), printed("Errors", failed ? [] : result.stderr));
    replace(this.#asked);
    this.complete = true;
  }

  /** Asks the person. @param {(approve: boolean, reason: string) => Promise<void>} answer */
  ask(answer) {
    this.#mark("waits for you", "warn");
    this.#details.open = true;
    const reason = h("input", { type: "text", "aria-label": "Reason for a denial (optional)", placeholder: "Reason for a denial (optional)" });
    /** @param {boolean} approve */
    const send = async (approve) => {
      for (const each of this.#asked.querySelectorAll("button")) each.disabled = true;
      try {
        await answer(approve, reason.value.trim());
        if (!this.complete) this.#mark(approve ? "approved" : "denied", approve ? "good" : "");
        replace(this.#asked);
      } finally {
        for (const each of this.#asked.querySelectorAll("button")) each.disabled = false;
      }
    };
    replace(this.#asked, h("p", null, "May the agent call ", code(this.toolName), " with these arguments?"), side(button("Approve", () => void send(true), "primary"), button("Deny", () => void send(false), "danger"), reason));
  }

  /** The call waits no longer, and its result is not known here. */
  settle() {
    if (this.complete || this.#asked.firstChild) return;
    this.#mark("asked", "");
  }

  get isWaiting() {
    return this.#asked.firstChild !== null;
  }

  toolName = "";
  /** Whether the whole call was read from the store. */
  stored = false;

  #draw() {
    this.settled();
    replace(this.#shown, longText(prettyJson(this.#arguments), { label: "Arguments" }));
  }

  /** @param {string} text @param {string} tone */
  #mark(text, tone) {
    this.#state.className = `tag ${tone}`;
    replace(this.#state, text);
  }
}
