// Batches: many messages in one request. `#/batches`, and `#/batches/<id>` with the outcome of each item.

import {
  action, agentLink, askWithAgent, card, choice, code, confirm, count, empty, factList, filters, go, h, head, keep,
  link, linkTo, meter, moment, number, pagedTable, pagesOf, post, replace, say, Screen, shortcut, shortened, side,
  stateTag, time, words,
} from "../core/index.js";

const ITEMS = 25;
const SHOWN_CHARS = 200;
const REFRESH_MS = 2500;
const KINDS = [["", "All batches"], ["true", "Not ended"]];

export default class BatchesScreen extends Screen {
  async show() {
    const id = this.route.path[1];
    await (id ? this.#one(id) : this.#list());
  }

  async #list() {
    const chosen = { active: this.asked("active") };
    const table = pagedTable(this, {
      label: "Batches",
      link: (row) => link(["batches", row.batch_id]),
      columns: [
        ["Started", (row) => time(row.created_at), "short"],
        ["Agent", agentsOf],
        ["State", stateOf, "short"],
        ["Progress", progressOf],
        ["Outcome", outcomeOf],
        ["Ended", (row) => (row.completed_at ? time(row.completed_at) : "not yet")],
        ["Actions", (row) => this.#cancel(row, async () => { await table.reload(); }), "actions"],
      ],
      none: empty("No batches here.", "A batch sends many messages in one request. Each gets an answer of its own."),
      load: pagesOf("v1/kelpie/batches", chosen, { key: "batch_id" }),
    });
    const create = async () => {
      const made = await askBatch(this.signal);
      if (made) go(["batches", made.batch_id]);
    };
    replace(
      this,
      head("Batches", action(this, ["New batch ", h("kbd", null, "n")], create, { class: "primary" })),
      filters(choice("Show", KINDS, chosen.active, (active) => { chosen.active = active; keep(chosen); void this.attempt(() => table.restart()); })),
      table.node,
    );
    shortcut("n", "New batch", () => void this.attempt(create), this.signal);
    this.repeat(() => table.reload(), REFRESH_MS);
    await table.reload();
  }

  /** @param {string} id */
  async #one(id) {
    const path = `v1/kelpie/batches/${encodeURIComponent(id)}`;
    const about = h("div");
    const buttons = h("div");
    const table = pagedTable(this, {
      label: "Items",
      columns: [
        ["Item", (row) => `Item ${number(row.index + 1)}`, "short"],
        ["State", (row) => stateTag(row.status), "short"],
        ["Agent", (row) => agentLink(row.agent_id)],
        ["Message", (row) => excerpt(row.input), "text"],
        ["Answer", (row) => [row.error && h("span", { class: "failure-what" }, excerpt(row.error), " "), excerpt(row.output)]],
        ["More", (row) => side(row.run_id && linkTo(["runs", row.run_id], "Run", { "aria-label": `Run of item ${row.index + 1}` }), row.conversation_id && linkTo(["chat", row.agent_id, row.conversation_id], "Conversation", { "aria-label": `Conversation of item ${row.index + 1}` }))],
      ],
      load: pagesOf(`${path}/items`, {}, { limit: ITEMS, key: "index" }),
    });
    let going = true;
    const look = async () => {
      const [row] = await Promise.all([this.get(path, { results: false }), table.reload()]);
      going = isActive(row);
      replace(buttons, this.#cancel(row, look));
      replace(about, factList([["Agent", agentsOf(row)], ["State", stateOf(row)], ["Progress", progressOf(row)], ["Outcome", outcomeOf(row)], ["Order", orderOf(row)], ["Started", moment(row.created_at)], ["Ended", row.completed_at ? moment(row.completed_at) : "not yet"], ["Callback", words(row.callback_url ?? "none")], ["Id", code(id)]]));
    };
    await look();
    replace(this, head("Batch", buttons, linkTo(["batches"], "All batches", { class: "button" })), card("About", about), card("Items", table.node));
    this.repeat(() => (going ? look() : null), REFRESH_MS);
    this.onReturn(look);
  }

  /** @param {any} row @param {() => Promise<void>} then */
  #cancel(row, then) {
    return isActive(row) && !row.cancel_requested && action(this, "Cancel", async () => {
      if (!(await confirm("Cancel batch", "No further items are sent, and the running ones are cancelled. Answers that are stored stay.", "Cancel batch", () => post(`v1/kelpie/batches/${row.batch_id}/cancel`)))) return;
      say("Cancelled the batch");
      await then();
    }, { class: "danger", label: `Cancel the batch of ${moment(row.created_at)}` });
  }
}

/** @param {AbortSignal} signal */
function askBatch(signal) {
  return askWithAgent(
    "New batch",
    [
      { name: "messages", label: "Messages", kind: "textarea", rows: 8, required: true, hint: "Each line is a message, at most 100." },
      { name: "long", label: "Messages have several lines", kind: "checkbox", hint: "Then an empty line stands between two messages." },
      { name: "parallel", label: "In parallel", kind: "checkbox", hint: "Up to 5 at once, each in a conversation of its own. Otherwise in order." },
    ],
    "Start batch",
    async (agent, values) => {
      const messages = String(values.messages).split(values.long ? /\n\s*\n/ : "\n").map((each) => each.trim()).filter(Boolean);
      const made = await post(`v1/agents/${agent}/messages/batch?background=true`, { messages, parallel: values.parallel });
      say(`Started a batch of ${count(messages.length, "message")}`);
      return made;
    },
    signal,
  );
}

/** @param {any} row */
const isActive = (row) => row.status === "created" || row.status === "running";

/** @param {any} row */
const stateOf = (row) => (isActive(row) && row.cancel_requested ? stateTag("cancelling") : stateTag(row.status));

/** @param {any} row */
const agentsOf = (row) => (row.agent_id ? agentLink(row.agent_id) : "several agents");

/** @param {any} row */
const orderOf = (row) => (row.parallel ? "parallel" : row.agent_id ? "in order" : "in order for each agent");

/** @param {any} row */
const progressOf = (row) => meter(row.completed + row.failed + row.cancelled, row.total, `${row.percentage} % of ${count(row.total, "item")}`, false);

/** @param {any} row */
function outcomeOf(row) {
  const parts = ["completed", "failed", "cancelled"].filter((each) => row[each] > 0).map((each) => `${number(row[each])} ${each}`);
  return parts.join(", ") || "none yet";
}

/** The beginning of a text; its run has the whole. @param {string | null} text */
const excerpt = (text) => words(shortened(text, SHOWN_CHARS));

customElements.define("kelpie-batches", BatchesScreen);
