// Access: API keys, access tokens and users.

import {
  action, agentLink, ago, ask, code, confirm, deleteButton, empty, get, h, head, listOfWords, moment, pagedTable,
  pagesOf, partHead, post, put, remove, replace, say, Screen, shownOnce, side, tabs, tagList, time, words,
} from "../core/index.js";

const PAGE = 50;
const DAY_MS = 86_400_000;
const ACCESS = ["read_messages", "write_messages", "read_agent", "write_agent"];

export default class AccessScreen extends Screen {
  async show() {
    const part = this.route.path[1] ?? "keys";
    const place = h("div", { class: "screen" });
    replace(this, head("Access"), tabs("Parts", ["access"], [["keys", "API keys"], ["tokens", "Access tokens"], ["users", "Users"]], part), place);
    if (part === "tokens") await this.#tokens(place);
    else if (part === "users") await this.#users(place);
    else await this.#keys(place);
  }

  /** @param {Element} place */
  async #keys(place) {
    const table = pagedTable(this, {
      label: "API keys",
      columns: [
        ["Name", (row) => words(row.name), "text"],
        ["Ends with", (row) => code(row.hint ?? ""), "short"],
        ["Scopes", (row) => tagList(row.scopes), "short"],
        ["Agents", (row) => (row.agent_ids === null ? "all" : row.agent_ids.slice(0, 5).map((/** @type {string} */ each) => [agentLink(each, "agents"), " "]))],
        ["Created", (row) => time(row.created_at), "short"],
        ["Last used", (row) => (row.last_used_at ? time(row.last_used_at) : "never"), "short"],
        ["Expires", (row) => (row.expires_at ? h("span", { title: moment(row.expires_at) }, ago(row.expires_at)) : "never"), "short"],
        ["Actions", (row) => action(place, "Revoke", async () => {
          if (!(await confirm("Revoke key", h("span", null, "Programs that use ", words(row.name), " lose access at once. It cannot be undone."), "Revoke key", () => remove(`v1/kelpie/keys/${row.id}`)))) return;
          say(`Revoked key ${row.name}`);
          await table.reload();
        }, { class: "danger", label: `Revoke ${row.name}` }), "actions"],
      ],
      none: empty("No API keys.", "A program signs in with a key. The dashboard accepts keys as well."),
      load: pagesOf("v1/kelpie/keys"),
    });
    const create = async () => {
      const made = await ask(
        "New API key",
        [
          { name: "name", label: "Name", required: true, hint: "Who or what uses it." },
          { name: "scope", label: "May", kind: "select", value: "write", options: [{ value: "read", label: "read" }, { value: "write", label: "read and write" }, { value: "admin", label: "administer the organization" }] },
          { name: "agents", label: "Only for these agents", hint: "Ids, separated by commas. Empty: all agents." },
          { name: "days", label: "Expires after (days)", kind: "number", hint: "Empty: never." },
        ],
        "Create key",
        (values) => {
          const ids = listOfWords(values.agents);
          return post("v1/kelpie/keys", { name: values.name, scopes: [values.scope], agent_ids: ids.length ? ids : null, expires_at: Number(values.days) > 0 ? new Date(Date.now() + Number(values.days) * DAY_MS).toISOString() : null });
        },
      );
      if (!made) return;
      shownOnce("New API key", made.key);
      await table.restart();
    };
    replace(place, partHead("A key is shown once, when it is made.", action(place, "New API key", create, { class: "primary" })), table.node);
    await table.reload();
  }

  /** @param {Element} place */
  async #tokens(place) {
    const table = pagedTable(this, {
      label: "Access tokens",
      columns: [
        ["Token", (row) => code(row.token)],
        ["Site", (row) => words(row.hostname)],
        ["May", (row) => row.policy.data.map((/** @type {any} */ each) => h("div", null, agentLink(each.id, "agents"), " ", tagList(each.access)))],
        ["Expires", (row) => h("span", { title: moment(row.expiresAt) }, ago(row.expiresAt)), "short"],
        ["Actions", (row) => deleteButton(place, "access token", "Pages that use it lose access at once.", `v1/client-side-access-tokens/${row.token}`, async () => { await table.reload(); }), "actions"],
      ],
      none: empty("No access tokens.", "A web page of yours uses one to reach some agents, for a short time."),
      load: async (/** @type {number | null} */ offset, signal) => {
        const told = await get("v1/client-side-access-tokens", { limit: PAGE, offset: offset ?? 0 }, signal);
        return { rows: told.tokens, next: told.hasNextPage ? (offset ?? 0) + PAGE : null };
      },
    });
    const create = async () => {
      const made = await ask(
        "New access token",
        [
          { name: "hostname", label: "Site", required: true, hint: "The origin of the page, such as that of your app: scheme and host." },
          { name: "agent", label: "Id of the agent", required: true },
          ...ACCESS.map((each) => ({ name: each, label: each.replace("_", " "), kind: /** @type {const} */ ("checkbox"), value: each === "read_messages" || each === "write_messages" })),
          { name: "minutes", label: "Expires after (minutes)", kind: "number", value: 60, required: true },
        ],
        "Create access token",
        (values) => {
          const access = ACCESS.filter((each) => values[each]);
          if (!access.length) throw new RangeError("Choose at least one thing that the page may do.");
          return post("v1/client-side-access-tokens", { hostname: values.hostname, policy: [{ type: "agent", id: values.agent, access }], expires_at: new Date(Date.now() + Number(values.minutes) * 60_000).toISOString() });
        },
      );
      if (!made) return;
      shownOnce("New access token", made.token);
      await table.restart();
    };
    replace(place, partHead("A token is shown once, when it is made.", action(place, "New access token", create, { class: "primary" })), table.node);
    await table.reload();
  }

  /** @param {Element} place */
  async #users(place) {
    const organizations = await this.get("v1/admin/orgs/", { limit: 200 });
    const names = new Map(organizations.map((/** @type {any} */ each) => [each.id, each.name]));
    const table = pagedTable(this, {
      label: "Users",
      columns: [
        ["Name", (row) => words(row.name), "text"],
        ["Id", (row) => code(row.id)],
        ["Organization", (row) => words(names.get(row.organization_id) ?? row.organization_id)],
        ["Created", (row) => time(row.created_at), "short"],
        ["Actions", (row) => side(action(place, "Rename", async () => {
          const done = await ask("Rename user", [{ name: "name", label: "Name", value: row.name, required: true }], "Rename", (values) => put("v1/admin/users/", { id: row.id, name: values.name }));
          if (done) await table.reload();
        }, { label: `Rename ${row.name}` }), deleteButton(place, "user", ["This deletes ", words(row.name), " with all keys and tokens."], "v1/admin/users/", async () => { await table.reload(); }, { label: `Delete ${row.name}`, query: { user_id: row.id } })), "actions"],
      ],
      load: pagesOf("v1/admin/users/"),
    });
    const create = async () => {
      const made = await ask("New user", [{ name: "name", label: "Name", required: true }, { name: "organization", label: "Organization", kind: "select", options: organizations.map((/** @type {any} */ each) => ({ value: each.id, label: each.name })) }], "Create user", (values) => post("v1/admin/users/", { name: values.name, organization_id: values.organization }));
      if (!made) return;
      say(`Created user ${made.name}`);
      await table.restart();
    };
    replace(place, partHead("Users own keys. The operator manages them.", action(place, "New user", create, { class: "primary" })), table.node);
    await table.reload();
  }
}

customElements.define("kelpie-access", AccessScreen);
