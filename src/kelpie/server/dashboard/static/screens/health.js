// Health: what `kelpie doctor` says about the server, as a page.

import {
  action, ApiError, bytes, card, count, duration, factList, failure, h, head, hint, link, linkTo, longText, number,
  percent, post, replace, say, Screen, scrolledTable, tag, words,
} from "../core/index.js";

const REFRESH_MS = 10_000;
const WAIT_WARN_S = 30;
const FREE_WARN = 0.1;
const SLOW_MS = 60_000;

/** @type {{[name: string]: [string, string]}} */
const COUNTS = { running: ["Under way", "job"], waiting: ["Wait for a place", "job"], places: ["Places", "place"], warm: ["Ready for the next job", "cell"], hits: ["Ran in a ready cell", "job"], misses: ["Had to wait for a cell", "job"] };

/** @typedef {{good: boolean | null, what: import("../core/dom.js").Child, remedy?: import("../core/dom.js").Child}} Finding */

export default class HealthScreen extends Screen {
  #findings = h("div", { class: "card" });
  #parts = h("div", { class: "screen" });

  async show() {
    const checked = h("div");
    replace(this, head("Health", action(this, "Check again", () => this.#look()), action(this, "Check the stored data", () => this.#data(checked))), this.#findings, checked, this.#parts);
    this.repeat(() => this.#look(), REFRESH_MS);
    this.onReturn(() => this.#look());
    await this.#look();
  }

  async #look() {
    const [health, models, sandbox, servers] = await Promise.all([this.get("v1/kelpie/health"), this.get("v1/kelpie/models"), this.get("v1/kelpie/sandbox"), this.get("v1/kelpie/mcp-servers")]);
    const found = findings(health, models, sandbox, servers);
    const wrong = found.filter((each) => each.good === false).length;
    replace(this.#findings, h("h2", null, wrong ? `${count(wrong, "problem")} found` : "Everything works"), h("ul", { class: "plain findings" }, found.sort((a, b) => Number(a.good ?? 0.5) - Number(b.good ?? 0.5)).map((each) => h("li", null, tag(each.good === null ? "note" : each.good ? "good" : "problem", each.good === null ? "warn" : each.good ? "good" : "bad"), h("span", null, each.what, each.remedy && [" ", hint(each.remedy)])))));
    replace(
      this.#parts,
      h("div", { class: "split" },
        card("Server", factList([["Version", health.version], ["Ready", health.ready ? "yes" : "no"], ["Runs under way", count(health.queue.running.runs, "run")], ["Runs that wait", count(health.queue.waiting.runs, "run")], ["Oldest that waits", health.queue.waiting.oldest_seconds === null ? "none" : duration(health.queue.waiting.oldest_seconds * 1000)], ["Disk", health.disk ? `${bytes(health.disk.free_bytes)} free of ${bytes(health.disk.total_bytes)}` : "shown to the operator"], ["Search by meaning", words(health.search.model ?? "none")]])),
        card("Sandbox", factList([["Isolation", words(sandbox.isolation ?? "none")], ["Required", words(sandbox.required)], ...Object.entries(COUNTS).map(([name, [label, unit]]) => /** @type {[string, string]} */ ([label, count(sandbox.counts?.[name], unit)]))]))),
      card("Providers", this.#providers(models.providers), models.absent.length > 0 && h("details", null, h("summary", null, `${count(models.absent.length, "provider")} not set up`), h("ul", { class: "plain" }, models.absent.map((/** @type {any} */ each) => h("li", null, h("strong", null, words(each.name)), " ", words(each.remedy)))))),
    );
  }

  /** @param {any[]} providers */
  #providers(providers) {
    return scrolledTable("Providers", [
      ["Provider", (row) => words(row.name)],
      ["State", (row) => (row.error ? [tag("fails", "bad"), " ", words(row.error)] : tag("answers", "good"))],
      ["Models", (row) => [count(row.models.length, "model"), row.hidden.length > 0 && `, ${number(row.hidden.length)} hidden`]],
      ["Address", (row) => words(row.endpoint ?? "built in")],
      ["Actions", (row) => row.models[0] && action(this, "Test", async () => {
        const { handle } = row.models[0];
        const told = await post("v1/kelpie/models/check", { handle }, { patienceMs: SLOW_MS });
        if (!told.ok) throw new ApiError(told.error, { status: 400, remedy: told.hint ?? told.detail ?? "" });
        say(`${handle} answers`);
      }, { label: `Test ${row.name}` }), "actions"],
    ], providers);
  }

  /** @param {Element} place */
  async #data(place) {
    replace(place, h("p", { class: "hint", role: "status" }, "Checking the stored data …"));
    try {
      const { sound, ...rest } = await this.get("v1/kelpie/data");
      replace(place, card("Stored data", h("p", null, tag(sound ? "sound" : "damaged", sound ? "good" : "bad")), h("details", { open: !sound }, h("summary", null, "What was looked at"), longText(JSON.stringify(rest, null, 2), { label: "Stored data" }))));
    } catch (error) {
      replace(place, failure(error));
    }
  }
}

/** @param {any} health @param {any} models @param {any} sandbox @param {any[]} servers @returns {Finding[]} */
function findings(health, models, sandbox, servers) {
  /** @type {Finding[]} */
  const found = [{ good: health.ready, what: health.ready ? "The server stores what it accepts." : words(health.why_not_ready), remedy: health.ready ? null : "Free disk space or restart the server; `kelpie logs` shows the cause." }];
  const waits = health.queue.waiting.oldest_seconds;
  found.push(waits !== null && waits > WAIT_WARN_S ? { good: false, what: `A run has waited for ${duration(waits * 1000)}.`, remedy: h("a", { href: link(["runs"], { state: "active" }) }, "Look at the runs that wait") } : { good: true, what: "No run waits for long." });
  const fails = models.providers.filter((/** @type {any} */ each) => each.error);
  for (const each of fails) found.push({ good: false, what: ["Provider ", words(each.name), ": ", words(each.error)], remedy: words(each.hint ?? each.detail ?? "") });
  if (models.providers.length > fails.length) found.push({ good: true, what: `${count(models.providers.length - fails.length, "provider")} answer${models.providers.length - fails.length === 1 ? "s" : ""}.` });
  found.push(models.default_model?.handle ? { good: true, what: ["New agents use ", words(models.default_model.handle), "."] } : { good: false, what: "New agents have no default model.", remedy: words(models.default_model?.reason ?? "") });
  found.push(health.search.degraded ? { good: null, what: "Searches look for words only.", remedy: words(health.search.remedy) } : { good: true, what: "Searches look for words and meaning." });
  if (health.disk) {
    const free = health.disk.free_bytes / Math.max(health.disk.total_bytes, 1);
    found.push({ good: free >= FREE_WARN ? true : free >= FREE_WARN / 2 ? null : false, what: `${percent(free)} of the disk is free (${bytes(health.disk.free_bytes)}).`, remedy: free < FREE_WARN ? "Free some space: a server that cannot write accepts no messages." : null });
  }
  found.push(sandbox.lacking ? { good: sandbox.required === "none" ? null : false, what: "Tools with code of their own cannot run in isolation.", remedy: words(sandbox.lacking) } : { good: true, what: "The sandbox works." });
  for (const each of servers.filter((one) => one.failures > 0)) found.push({ good: false, what: ["MCP server ", words(each.server_name), " fails: ", words(each.last_error ?? "unknown reason")], remedy: linkTo(["tools", "servers"], "Look at the server") });
  return found;
}

customElements.define("kelpie-health", HealthScreen);
