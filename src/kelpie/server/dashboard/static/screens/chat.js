// Chat with an agent, in its default conversation or another: `#/chat/<agent>/<conversation>`.

import {
  action, ApiError, ask, button, chatPath, confirm, fail, followRun, go, h, head, hint, link, linkTo, moment, note,
  openLastAgent, patch, post, rememberAgent, remove, replace, say, Screen, sendTurn, shortcut, shortened, side, words,
} from "../core/index.js";
import { createAgent } from "./agent_forms.js";
import { composer } from "./chat/composer.js";
import { transcript } from "./chat/transcript.js";

const PAGE = 50;
const DEFAULT = "default";
const POLL_MS = 5000;
const WIDE = matchMedia("(min-width: 1000px)"); // the conversations stand beside the messages

export default class ChatScreen extends Screen {
  #agentId = "";
  #conversation = DEFAULT;
  /** @type {any} */
  #agent = null;
  #transcript = transcript();
  #composer = composer((content) => void this.#say(content), () => void this.#stop());
  #problem = h("div");
  #activity = h("p", { class: "activity hint", role: "status" });
  #side = h("aside", { class: "chat-side", "aria-label": "Conversations" });
  #following = "";

  async show() {
    const [, agentId, conversation] = this.route.path;
    if (!agentId) {
      const create = async () => {
        const made = await createAgent(this.signal);
        if (made) go(["chat", made.id]);
      };
      return openLastAgent(this, "chat", "Chat", [h("p", null, "Create one to talk to. The built-in demo model needs no key."), action(this, "New agent", create, { class: "primary" })]);
    }
    this.#agentId = agentId;
    this.#conversation = conversation ?? DEFAULT;
    this.#agent = await this.agent(agentId);
    rememberAgent(agentId);
    this.windowTitle(this.#agent.name);
    this.classList.add("chat");
    this.#transcript.loadEarlier = () => this.attempt(() => this.#page(true));
    this.#transcript.answer = (entry, approve, reason) => this.#answer(entry.callId, approve, reason);
    const top = head(words(this.#agent.name), hint(words(this.#agent.model ?? "")), h("a", { href: link(["prompt", agentId], this.#isDefault ? {} : { conversation: this.#conversation }) }, "Prompt"), h("a", { href: link(["runs"], { agent: agentId }) }, "Runs"), linkTo(["agents", agentId], "Details"), linkTo(["agents"], "All agents"));
    replace(this, top, this.#side, h("div", { class: "chat-main" }, this.#transcript, this.#activity, this.#problem, this.#composer.node));
    shortcut("c", "Write a message", () => this.#composer.focus(), this.signal);
    shortcut("Escape", "Stop the running turn", () => this.#following && void this.#stop(), this.signal);
    this.onReturn(() => this.#resume());
    this.repeat(() => this.#resume(), POLL_MS);
    await Promise.all([this.#page(false), this.#conversations()]);
    if (this.#transcript.isEmpty) replace(this.#problem, note("Nothing was said here yet. Write the first message."));
    await this.#resume();
    this.#composer.focus();
  }

  get #isDefault() {
    return this.#conversation === DEFAULT;
  }

  get #path() {
    return this.#isDefault ? `v1/agents/${this.#agentId}/messages` : `v1/conversations/${this.#conversation}/messages`;
  }

  /** @param {boolean} earlier */
  async #page(earlier) {
    const before = earlier ? this.#transcript.oldest : null;
    const found = await this.get(this.#path, { limit: PAGE, order: "desc", before, conversation_id: this.#isDefault ? DEFAULT : null });
    const ordered = this.#isDefault ? found : [...found].reverse(); // the older route answers the oldest first
    const rows = ordered.filter((/** @type {any} */ each) => each.message_type !== "system_message");
    this.#transcript.page(rows, { before: earlier, more: found.length >= PAGE });
    await this.#approvals();
  }

  async #conversations() {
    const found = await this.get("v1/conversations/", { agent_id: this.#agentId, limit: PAGE, order: "desc" });
    const entry = (/** @type {string} */ id, /** @type {import("../core/dom.js").Child} */ label, /** @type {string | null} */ when) => h("li", null, linkTo(chatPath(this.#agentId, id), label, { "aria-current": id === this.#conversation ? "page" : null, title: when ? moment(when) : null }));
    const now = found.find((/** @type {any} */ each) => each.id === this.#conversation);
    const create = async () => {
      const made = await post(`v1/conversations/?agent_id=${encodeURIComponent(this.#agentId)}`, {});
      go(["chat", this.#agentId, made.id]);
    };
    replace(
      this.#side,
      h("details", { open: this.#side.querySelector("details")?.open ?? WIDE.matches }, h("summary", null, h("h2", null, "Conversations"), hint(": ", words(shortened(now ? now.summary || "unnamed" : "Default", 40)))), h("ul", { class: "plain" }, entry(DEFAULT, "Default", null), found.map((/** @type {any} */ each) => entry(each.id, each.summary ? words(shortened(each.summary, 60)) : `From ${moment(each.created_at)}`, each.last_message_at))), !this.#isDefault && side(button("Rename", () => void this.attempt(() => this.#rename()), "quiet"), button("Delete", () => void this.attempt(() => this.#delete()), "quiet"))),
      button("New", () => void this.attempt(create)),
    );
  }

  async #rename() {
    const now = await this.get(`v1/conversations/${this.#conversation}`);
    const done = await ask("Rename conversation", [{ name: "summary", label: "Name", value: now.summary ?? "", required: true }], "Rename", async (values) => (await patch(`v1/conversations/${this.#conversation}`, { summary: values.summary }), true));
    if (done) await this.#conversations();
  }

  async #delete() {
    const done = await confirm("Delete conversation", "This deletes the conversation with its messages. It cannot be undone.", "Delete conversation", () => remove(`v1/conversations/${this.#conversation}`));
    if (done) {
      say("Deleted the conversation");
      go(["chat", this.#agentId]);
    }
  }

  /** @param {string | unknown[]} content */
  async #say(content) {
    const otid = crypto.randomUUID ? crypto.randomUUID() : fallbackId();
    replace(this.#problem);
    this.#transcript.said(otid, content);
    this.#transcript.toNewest();
    const sent = await this.#turn({ messages: [{ role: "user", content, otid }] });
    if (!sent && typeof content === "string") this.#composer.restore(content);
  }

  /** @param {string} callId @param {boolean} approve @param {string} reason */
  async #answer(callId, approve, reason) {
    const approval = { type: "approval", tool_call_id: callId, approve, ...(reason && !approve ? { reason } : {}) };
    const left = (await this.#pending()).filter((each) => each !== callId).length;
    await this.#turn({ messages: [{ type: "approval", approvals: [approval], ...(left ? { partial: true } : {}) }] });
    await this.#approvals();
  }

  /** Sends and follows a turn; false when it was not accepted. @param {{[field: string]: unknown}} body */
  async #turn(body) {
    if (this.#following) return false;
    this.#begin("sending");
    let accepted = true;
    try {
      const path = this.#isDefault ? `${this.#path}/stream` : this.#path;
      await sendTurn(path, body, (frame) => this.#frame(frame), this.signal);
    } catch (error) {
      if (this.signal.aborted) return true;
      if (!(error instanceof ApiError)) throw error;
      accepted = false;
      fail(this.#problem, error);
    } finally {
      this.#end();
    }
    await this.attempt(() => this.#page(false));
    return accepted;
  }

  /** Follows a turn that runs already: after a reload, or one that another client began. */
  async #resume() {
    if (this.#following || !this.isConnected) return;
    const active = await this.get("v1/kelpie/runs", { state: "active", agent_id: this.#agentId, conversation_id: this.#conversation, limit: 10 });
    const run = active.filter((/** @type {any} */ each) => each.background).pop() ?? active[0];
    if (!run || this.#following) return;
    this.#begin(run.id);
    try {
      const record = await this.get(`v1/kelpie/runs/${run.id}`);
      record.input.forEach((/** @type {any} */ said, /** @type {number} */ place) => {
        if (said.role === "user") this.#transcript.said(said.otid ?? `input:${run.id}:${place}`, said.content, run.id);
      });
      if (run.background) await followRun(run.id, 0, (frame) => this.#frame(frame), this.signal);
      else await this.#ended(run.id);
    } catch (error) {
      if (this.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
    } finally {
      this.#end();
    }
    await this.attempt(() => this.#page(false));
  }

  /** Waits for a run whose stream is not stored. @param {string} runId */
  async #ended(runId) {
    for (;;) {
      const run = await this.get(`v1/runs/${runId}`);
      if (run.status !== "running" && run.status !== "created") return;
      await new Promise((resolve) => window.setTimeout(resolve, 1000));
    }
  }

  /** @param {any} frame */
  #frame(frame) {
    if (frame.run_id) this.#following = frame.run_id;
    this.#transcript.frame(frame);
    if (frame.message_type === "approval_request_message") void this.attempt(() => this.#approvals());
  }

  /** @param {string} runId */
  #begin(runId) {
    this.#following = runId;
    this.#transcript.startedAt = performance.now();
    this.#composer.running(true);
    replace(this.#activity, h("span", { class: "pulse" }, "The agent is working …"));
  }

  #end() {
    this.#following = "";
    this.#composer.running(false);
    replace(this.#activity);
  }

  async #stop() {
    try {
      if (this.#isDefault) await post(`v1/agents/${this.#agentId}/messages/cancel`, this.#following.startsWith("run-") ? { run_ids: [this.#following] } : {});
      else await post(`v1/conversations/${this.#conversation}/cancel`, {});
      say("Asked the agent to stop");
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      fail(this.#problem, error);
    }
  }

  /** @returns {Promise<string[]>} */
  async #pending() {
    const found = await this.get(`v1/agents/${this.#agentId}/approvals`, { limit: 100 });
    return found
      .filter((/** @type {any} */ each) => each.conversation_id === this.#conversation)
      .flatMap((/** @type {any} */ each) => each.tool_calls.filter((/** @type {any} */ call) => call.waits_for === "approval").map((/** @type {any} */ call) => call.tool_call_id));
  }

  async #approvals() {
    this.#transcript.waiting(new Set(await this.#pending()));
  }
}

/** An id where the browser offers none: pages over plain HTTP from another machine. */
function fallbackId() {
  const random = crypto.getRandomValues(new Uint8Array(16));
  random[6] = ((random[6] ?? 0) & 0x0f) | 0x40;
  random[8] = ((random[8] ?? 0) & 0x3f) | 0x80;
  const hex = [...random].map((each) => each.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

customElements.define("kelpie-chat", ChatScreen);
