// Schedules and webhooks of all agents: `#/schedules`, `#/schedules/<id>`, what was fired at `#/schedules/firings`, and
// the webhooks at `#/schedules/webhooks`.

import {
  action, agentLink, ago, ask, askWithAgent, card, choice, code, confirm, count, deleteButton, empty, factList, filters,
  go, h, head, hint, keep, link, linkTo, longText, moment, pagedTable, pagesOf, patch, post, replace, say, Screen,
  shortcut, shortened, shownOnce, side, tabs, tag, time, words,
} from "../core/index.js";

const HISTORY = 20;
const FIRINGS = [["", "Any state"], ["dead", "Given up"], ["waiting", "Waiting"], ["running", "Running"], ["done", "Done"], ["skipped", "Skipped"], ["cancelled", "Cancelled"]];
const MISSED = [["run_once", "run once"], ["run_all", "run all, up to a limit"], ["skip", "skip"]];
const REFRESH_MS = 5000;
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
/** @type {{[state: string]: string}} */
const TONES = { active: "good", paused: "warn", done: "good", sent: "good", dead: "bad", pending: "warn", waiting: "warn", running: "warn" };

export default class SchedulesScreen extends Screen {
  async show() {
    const part = this.route.path[1];
    if (part === "webhooks") await this.#hooks();
    else if (part === "firings") await this.#history();
    else if (part && part !== "list") await this.#one(part);
    else await this.#list();
  }

  /** @param {string} current @param {...HTMLElement} buttons */
  #head(current, ...buttons) {
    return [head("Schedules and webhooks", ...buttons), tabs("Kinds", ["schedules"], [["list", "Schedules"], ["firings", "Firings"], ["webhooks", "Webhooks"]], current)];
  }

  async #list() {
    /** @type {() => Promise<void>} */
    const again = () => table.reload();
    const table = pagedTable(this, {
      label: "Schedules",
      link: (row) => link(["schedules", row.id]),
      columns: [
        ["Schedule", (row) => words(row.name || shortened(textOf(row), 80) || row.id)],
        ["Agent", (row) => agentLink(row.agent_id)],
        ["When", whenOf],
        ["State", (row) => stateOf(row.status), "short"],
        ["Next", (row) => (row.next_scheduled_time && !row.paused ? h("time", { datetime: row.next_scheduled_time, title: moment(row.next_scheduled_time) }, ago(row.next_scheduled_time)) : "–"), "short"],
        ["Last", (row) => (row.last_scheduled_time ? time(row.last_scheduled_time) : "never"), "short"],
        ["Actions", (row) => side(this.#actions(row, again)), "actions"],
      ],
      none: empty("No schedules.", "A schedule sends a message to an agent at a time, or again and again."),
      load: pagesOf("v1/kelpie/schedules"),
    });
    const create = async () => {
      if (await createSchedule(this.signal)) await table.restart();
    };
    replace(this, this.#head("list", action(this, ["New schedule ", h("kbd", null, "n")], create, { class: "primary" })), table.node);
    shortcut("n", "New schedule", () => void this.attempt(create), this.signal);
    this.repeat(() => table.reload(), REFRESH_MS);
    await table.reload();
  }

  /** @param {any} row @param {() => Promise<void>} again @returns {import("../core/dom.js").Child[]} */
  #actions(row, again) {
    const base = `v1/agents/${row.agent_id}/schedule/${row.id}`;
    const name = row.name || row.id;
    return [
      action(this, "Run now", async () => { await post(`${base}/run`); say("Fired the schedule"); await again(); }, { label: `Run now: ${name}` }),
      row.status !== "completed" && action(this, row.paused ? "Resume" : "Pause", async () => { await patch(base, { paused: !row.paused }); say(row.paused ? "Resumed the schedule" : "Paused the schedule"); await again(); }, { label: `${row.paused ? "Resume" : "Pause"} ${name}` }),
      deleteButton(this, "schedule", "This deletes the schedule with its history.", base, () => (this.route.path[1] === row.id ? go(["schedules"]) : again()), { label: `Delete ${name}` }),
    ];
  }

  /** @param {string} id */
  async #one(id) {
    const row = await this.get(`v1/kelpie/schedules/${id}`);
    const base = `v1/agents/${row.agent_id}/schedule/${id}`;
    const again = () => this.#one(id);
    const single = row.message.messages.length === 1; // a form has one text
    const edit = async () => {
      const done = await ask("Edit schedule", [
        { name: "name", label: "Name", value: row.name ?? "" },
        ...(single ? [{ name: "message", label: "Message", kind: /** @type {const} */ ("textarea"), rows: 5, value: textOf(row), required: true }] : []),
        ...(row.recurrence_rule ? [{ name: "rule", label: "Cron expression", value: row.recurrence_rule, required: true }, { name: "zone", label: "Time zone", value: row.timezone, required: true }] : [{ name: "at", label: "Time", value: row.scheduled_time, required: true, hint: "With its offset, such as 2027-01-31T09:00:00Z." }]),
        { name: "missed", label: "Times that were missed", kind: /** @type {const} */ ("select"), value: row.missed_policy, options: MISSED.map(([value = "", label = ""]) => ({ value, label })) },
      ], "Save schedule", async (values) => (await patch(base, { name: values.name || null, ...(single ? { message: values.message } : {}), ...(row.recurrence_rule ? { recurrence_rule: values.rule, timezone: values.zone } : values.at !== row.scheduled_time ? { scheduled_time: values.at } : {}), missed_policy: values.missed }), true));
      if (done) await again();
    };
    const table = this.#firings(pagesOf(`${base}/firings`, {}, { limit: HISTORY }), "It has not fired yet.", false);
    this.windowTitle(row.name || "Schedule");
    replace(
      this,
      head(words(row.name || "Schedule"), action(this, "Edit", edit), this.#actions(row, again), linkTo(["schedules"], "All schedules", { class: "button" })),
      card("About", factList([["Agent", agentLink(row.agent_id)], ["When", whenOf(row)], ["State", stateOf(row.status)], ["Next", row.next_scheduled_time ? moment(row.next_scheduled_time) : "none"], ["Missed times", words(String(row.missed_policy).replaceAll("_", " "))], ["Id", code(row.id)]]), longText(textOf(row), { label: "Message" })),
      card("History", table.node),
    );
    await table.reload();
  }

  /**
   * Firings with what came of them; one that was given up can be tried again.
   * @param {import("../core/table.js").PagedOptions["load"]} load
   * @param {string} none
   * @param {boolean} all whether they are of several schedules
   */
  #firings(load, none, all) {
    const table = pagedTable(this, {
      label: "Firings",
      link: all ? (row) => link(["schedules", row.schedule_id]) : undefined,
      columns: [
        ["Due", (row) => [moment(row.scheduled_time), row.manual && [" ", tag("by hand")]]],
        ["Agent", (row) => agentLink(row.agent_id)],
        ["State", (row) => stateOf(row.status), "short"],
        ["Attempts", (row) => count(row.attempts, "attempt"), "num"],
        ["Error", (row) => words(shortened(row.error, 300)), "text"],
        ["Run", (row) => (row.run_id ? linkTo(["runs", row.run_id], "Run") : row.batch_id ? linkTo(["batches", row.batch_id], "Batch") : "–"), "short"],
        ["Actions", (row) => row.status === "dead" && action(this, "Try again", async () => { await post(`v1/kelpie/firings/${row.id}/requeue`); say("The firing is tried again"); await table.reload(); }), "actions"],
      ],
      none: empty(none),
      load,
    });
    this.repeat(() => table.reload(), REFRESH_MS);
    return table;
  }

  /** Firings of all schedules, such as those that were given up. */
  async #history() {
    const chosen = { status: this.asked("status") };
    const table = this.#firings(pagesOf("v1/kelpie/firings", chosen), "No firings here.", true);
    replace(this, this.#head("firings"), filters(choice("State", FIRINGS, chosen.status, (status) => { chosen.status = status; keep(chosen); void this.attempt(() => table.restart()); })), table.node);
    await table.reload();
  }

  async #hooks() {
    const table = pagedTable(this, {
      label: "Webhooks",
      columns: [
        ["Webhook", (row) => words(row.name)],
        ["Agent", (row) => agentLink(row.agent_id)],
        ["State", (row) => stateOf(row.enabled ? "active" : "paused")],
        ["Instructions", (row) => words(shortened(row.instructions, 300)), "text"],
        ["Last used", (row) => (row.last_used_at ? time(row.last_used_at) : "never")],
        ["Actions", (row) => {
          const base = `v1/agents/${row.agent_id}/hooks/${row.id}`;
          return side(action(this, row.enabled ? "Switch off" : "Switch on", async () => { await patch(base, { enabled: !row.enabled }); await table.reload(); }, { label: `${row.enabled ? "Switch off" : "Switch on"} ${row.name}` }), action(this, "New address", async () => {
            if (await confirm("New address", "The present address stops working at once.", "Make a new address", async () => showAddress(await post(`${base}/renew`)))) await table.reload();
          }, { label: `New address of ${row.name}` }), deleteButton(this, "webhook", "Its address stops working at once.", base, async () => { await table.reload(); }, { label: `Delete ${row.name}` }));
        }, "actions"],
      ],
      none: empty("No webhooks.", "A webhook is an address: what another program posts to it wakes an agent."),
      load: pagesOf("v1/kelpie/hooks"),
    });
    const create = async () => {
      const made = await askWithAgent("New webhook", [{ name: "name", label: "Name", required: true }, { name: "instructions", label: "Instructions", kind: "textarea", rows: 3, hint: "Stand before each body that arrives." }], "Create webhook", (agent, values) => post(`v1/agents/${agent}/hooks`, { name: values.name, instructions: values.instructions || null }), this.signal);
      if (!made) return;
      showAddress(made);
      await table.restart();
    };
    replace(this, this.#head("webhooks", action(this, ["New webhook ", h("kbd", null, "n")], create, { class: "primary" })), table.node);
    shortcut("n", "New webhook", () => void this.attempt(create), this.signal);
    await table.reload();
  }
}

/** @param {AbortSignal} signal */
function createSchedule(signal) {
  return askWithAgent(
    "New schedule",
    [
      { name: "name", label: "Name" },
      { name: "message", label: "Message", kind: "textarea", rows: 4, required: true },
      { name: "rule", label: "Cron expression", hint: "Again and again: minute, hour, day, month, weekday. `0 9 * * 1-5` is 9:00 on weekdays." },
      { name: "at", label: "Or once at", hint: "Such as 2027-01-31T09:00, in the time zone below." },
      { name: "zone", label: "Time zone", value: ZONE, required: true },
    ],
    "Create schedule",
    async (agent, values) => {
      if (Boolean(values.rule) === Boolean(values.at)) throw new RangeError("Give either a cron expression or one time.");
      const made = await post(`v1/agents/${agent}/schedule`, { name: values.name || null, message: values.message, timezone: values.zone, ...(values.rule ? { recurrence_rule: values.rule } : { scheduled_time: values.at }) });
      say("Created the schedule");
      return made;
    },
    signal,
  );
}

/** @param {any} hook */
const showAddress = (hook) => shownOnce("Address of the webhook", new URL(hook.path.replace(/^\//, ""), document.baseURI).href, "Whoever knows it can wake the agent.");

/** @param {any} row */
function textOf(row) {
  return (row.message?.messages ?? []).map((/** @type {any} */ each) => (typeof each.content === "string" ? each.content : (each.content ?? []).map((/** @type {any} */ part) => part.text ?? "[image]").join(" "))).join("\n");
}

/** @param {any} row */
function whenOf(row) {
  return row.recurrence_rule ? [code(row.recurrence_rule), " ", hint(row.timezone)] : `once, ${moment(row.scheduled_time)}`;
}

/** @param {string} state */
const stateOf = (state) => tag(state, TONES[state]);

customElements.define("kelpie-schedules", SchedulesScreen);
