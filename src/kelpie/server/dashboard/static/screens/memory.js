// The memory of one agent: `#/memory/<agent>/<part>/<id>`. Its parts are in screens/memory/, one module each.

import { agentField, go, h, head, linkTo, openLastAgent, rememberAgent, replace, Screen, tabs, words } from "../core/index.js";
import { blockList, blockPage } from "./memory/blocks.js";
import { factsPart } from "./memory/facts.js";
import { filesPart } from "./memory/files.js";
import { passagesPart } from "./memory/passages.js";
import { searchPart } from "./memory/search.js";
import { workingPart } from "./memory/working.js";

/** @typedef {{id: string, name: string}} Agent */

/** @type {[string, string][]} */
const PARTS = [["blocks", "Blocks"], ["working", "Working memory"], ["passages", "Passages"], ["facts", "Facts"], ["files", "Files"], ["search", "Search"]];
/** @type {{[name: string]: (screen: Screen, agent: Agent, place: Element) => Promise<void>}} */
const SHOW = { blocks: blockList, working: workingPart, passages: passagesPart, facts: factsPart, files: filesPart, search: searchPart };

export default class MemoryScreen extends Screen {
  async show() {
    const [, id, part = "blocks", item] = this.route.path;
    if (!id) return openLastAgent(this, "memory", "Memory");
    const agent = await this.agent(id);
    rememberAgent(id);
    this.windowTitle(`Memory of ${agent.name}`);
    const place = h("div", { class: "screen" });
    const chosen = agentField({ id, name: agent.name }, (found) => found && found.id !== id && go(["memory", found.id, part]), this.signal, "Choose an agent");
    replace(
      this,
      head(["Memory of ", words(agent.name)], linkTo(["chat", id], "Chat", { class: "button" }), linkTo(["agents", id], "Details", { class: "button" })),
      h("div", { class: "filters" }, chosen),
      tabs("Parts of the memory", ["memory", id], PARTS, part),
      place,
    );
    if (part === "blocks" && item) await blockPage(this, agent, place, item);
    else await (SHOW[part] ?? blockList)(this, agent, place);
  }
}

customElements.define("kelpie-memory", MemoryScreen);
