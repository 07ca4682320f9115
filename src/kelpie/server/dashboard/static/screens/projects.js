// Projects: named collections of agents. `#/projects`, and `#/projects/<id>` with the agents of one.

import {
  action, agentField, ApiError, ask, card, code, count, empty, factList, filters, go, h, head, keep, link, linkTo,
  listOfWords, note, pagedTable, pagesOf, patch, post, remove, replace, say, Screen, searchField, shortcut, shortened,
  shortId, side, tag, time, words,
} from "../core/index.js";

const DELETE_MS = 600_000;
const USER = /^user-[0-9a-f-]{36}$/; // whose whole id is on the page of the project

export default class ProjectsScreen extends Screen {
  async show() {
    const id = this.route.path[1];
    await (id ? this.#one(id) : this.#list());
  }

  async #list() {
    const chosen = { owner: this.asked("owner"), tag: this.asked("tag") };
    const table = pagedTable(this, {
      label: "Projects",
      link: (row) => link(["projects", row.id]),
      columns: [
        ["Name", (row) => words(row.name)],
        ["Description", (row) => words(shortened(row.description, 300)), "text"],
        ["Tags", (row) => tagLinks(row.tags.slice(0, 8))],
        ["Owner", (row) => h("span", { title: row.owner }, words(USER.test(row.owner) ? shortId(row.owner) : row.owner))],
        ["Changed", (row) => time(row.updated_at), "short"],
      ],
      none: empty("No projects here.", "A project is a named collection of agents. Create one, or change the filters."),
      load: pagesOf("v1/projects", chosen),
    });
    /** @param {"owner" | "tag"} name @returns {(text: string) => void} */
    const filter = (name) => (text) => {
      chosen[name] = text;
      keep(chosen);
      void this.attempt(() => table.restart());
    };
    const create = async () => {
      const made = await askProject("New project", "Create project", {}, (body) => post("v1/projects", body));
      if (made) go(["projects", made.id]);
    };
    replace(
      this,
      head("Projects", action(this, ["New project ", h("kbd", null, "n")], create, { class: "primary" })),
      filters(searchField("Owner", chosen.owner, filter("owner"), "Whole name or id"), searchField("Tag", chosen.tag, filter("tag"), "Whole tag")),
      table.node,
    );
    shortcut("n", "New project", () => void this.attempt(create), this.signal);
    await table.reload();
  }

  /** @param {string} id */
  async #one(id) {
    const path = `v1/projects/${encodeURIComponent(id)}`;
    const project = await this.get(path);
    const again = () => this.#one(id);
    this.windowTitle(project.name);
    const edit = async () => {
      if (await askProject("Edit project", "Save changes", project, (body) => patch(path, body))) await again();
    };
    /** @type {{id: string, name: string} | null} */
    let agent = null;
    const field = agentField(null, (found) => (agent = found), this.signal, "Search by name");
    const add = async () => {
      if (!agent) throw new RangeError("Choose an agent from the list.");
      const told = (await post(`${path}/agents`, { agent_id: agent.id })).results[0];
      if (told.error) throw new ApiError(told.error, { status: told.status });
      say(told.added ? `Added ${agent.name}` : `${agent.name} is in this project already`);
      await again();
    };
    const place = h("div", { class: "screen" });
    const table = pagedTable(this, {
      label: "Agents",
      link: (row) => link(["agents", row.id]),
      columns: [
        ["Name", (row) => words(row.name)],
        ["Model", (row) => words(row.model ?? "")],
        ["Description", (row) => words(shortened(row.description, 300)), "text"],
        ["Home", (row) => (row.project_id === id ? tag("home project") : "no")],
        ["Actions", (row) => side(linkTo(["chat", row.id], "Chat", { "aria-label": `Chat with ${row.name}` }), action(place, "Remove", async () => { await remove(`${path}/agents/${row.id}`); say(`Removed ${row.name} from the project`); await again(); }, { label: `Remove ${row.name}` })), "actions"],
      ],
      none: empty("No agents are in this project."),
      load: pagesOf(`${path}/agents`),
    });
    replace(place, h("div", { class: "filters" }, field, action(place, "Add agent", add)), table.node);
    replace(
      this,
      head(words(project.name), action(this, "Edit", edit), action(this, "Delete", () => this.#delete(path, project), { class: "danger" }), linkTo(["projects"], "All projects", { class: "button" })),
      card("About", project.description && h("p", { class: "plain-text" }, words(project.description)), factList([["Owner", h("a", { href: link(["projects"], { owner: project.owner }) }, words(project.owner))], ["Tags", project.tags.length ? tagLinks(project.tags) : "none"], ["Agents", count(project.agent_count, "agent")], ["Created", time(project.created_at)], ["Changed", time(project.updated_at)], ["Id", code(project.id)]])),
      card("Agents", note("An agent can be in several projects. An agent that is removed stays on the server."), place),
    );
    await table.reload();
  }

  /** Deletes a project; its agents only after a second question. @param {string} path @param {any} project */
  async #delete(path, project) {
    const agents = count(project.agent_count, "agent");
    const answer = await ask(
      "Delete project",
      project.agent_count ? [{ name: "agents", label: `Delete its ${agents} too`, kind: /** @type {const} */ ("checkbox"), hint: "You are asked once more. Otherwise the agents stay." }] : [],
      "Delete project",
      async (values) => (values.agents ? "agents" : (await remove(path), "done")),
      { danger: true, intro: h("p", null, "This deletes the project ", words(project.name), ". It cannot be undone.") },
    );
    if (answer === "agents") {
      const done = await ask("Delete project and agents", [{ name: "name", label: "Name of the project", required: true, hint: "Write it to confirm." }], `Delete project and ${agents}`, async (values) => {
        if (values.name !== project.name) throw new RangeError("This is not the name of the project.");
        const told = await remove(path, { query: { delete_agents: true, confirm: project.name }, patienceMs: DELETE_MS });
        const failed = told.results.filter((/** @type {any} */ each) => each.error);
        if (failed.length) throw new ApiError(`${count(failed.length, "agent")} could not be deleted, so the project stays: ${failed[0].error}`, { status: failed[0].status });
        return true;
      }, { danger: true, intro: h("p", null, `This deletes ${agents} with all messages and memory, also from other projects. It cannot be undone.`) });
      if (!done) return;
    }
    if (!answer) return;
    say(`Deleted project ${project.name}`);
    go(["projects"]);
  }
}

/**
 * @param {string} title
 * @param {string} label
 * @param {{name?: string, description?: string, tags?: string[], owner?: string}} project
 * @param {(body: {[field: string]: unknown}) => Promise<any>} act
 */
function askProject(title, label, project, act) {
  return ask(
    title,
    [
      { name: "name", label: "Name", required: true, value: project.name ?? "" },
      { name: "description", label: "Description", kind: "textarea", rows: 3, value: project.description ?? "" },
      { name: "tags", label: "Tags", value: (project.tags ?? []).join(", "), hint: "Separated by commas." },
      { name: "owner", label: "Owner", value: project.owner ?? "", hint: "A person or a team. Empty: as it is, for a new project your user." },
    ],
    label,
    (values) => act({ name: values.name, description: values.description || null, tags: listOfWords(values.tags), ...(values.owner ? { owner: values.owner } : {}) }),
  );
}

/** @param {string[]} tags */
const tagLinks = (tags) => h("span", null, tags.map((each) => [h("a", { class: "tag", href: link(["projects"], { tag: each }) }, words(each)), " "]));

customElements.define("kelpie-projects", ProjectsScreen);
