// Import and export of agents as files.

import {
  action, address, agentField, agentLink, ApiError, bytes, card, count, h, head, labelled, note, post, replace, say,
  Screen, side, words,
} from "../core/index.js";

const UPLOAD_MS = 600_000;

export default class TransferScreen extends Screen {
  async show() {
    const id = this.route.query.get("agent");
    const agent = id ? await this.agent(id) : null;
    replace(this, head("Import and export"), h("div", { class: "split" }, this.#import(), this.#export(agent)));
  }

  #import() {
    const problem = h("div");
    const shown = h("div", { "aria-live": "polite" });
    const file = h("input", { type: "file", accept: ".af,.json,.gz,application/json" });
    const [name, model] = [h("input", { type: "text", autocomplete: "off" }), h("input", { type: "text", autocomplete: "off" })];
    const [strip, tools] = [h("input", { type: "checkbox" }), h("input", { type: "checkbox", checked: true })];
    const run = async () => {
      const chosen = file.files?.[0];
      if (!chosen) throw new RangeError("Choose an agent file.");
      const form = new FormData();
      form.append("strip_messages", String(strip.checked));
      form.append("override_existing_tools", String(tools.checked));
      form.append("append_copy_suffix", "false");
      if (name.value.trim()) form.append("name", name.value.trim());
      if (model.value.trim()) form.append("model", model.value.trim());
      form.append("file", chosen);
      replace(shown, note(`Reading ${bytes(chosen.size)} …`));
      try {
        const told = await post("v1/agents/import", form, { patienceMs: UPLOAD_MS, signal: this.signal });
        say(`Imported ${count(told.agent_ids.length, "agent")}`);
        replace(shown, h("p", null, "Imported: ", told.agent_ids.map((/** @type {string} */ each) => [agentLink(each, "agents"), " "])), (told.kelpie_notes ?? []).map((/** @type {string} */ each) => note(words(each))));
      } catch (error) {
        replace(shown);
        throw error;
      }
    };
    return card("Import", h("div", { class: "form" }, labelled("Agent file", file, "", "Of Kelpie or Letta (.af), also compressed with gzip."), labelled("Name", name, "", "Empty: as in the file."), labelled("Model", model, "", "Empty: as in the file. Otherwise provider/model."), labelled("Leave the messages out", strip, "inline"), labelled("Replace tools that have the same name", tools, "inline")), problem, side(action(problem, "Import agent", run, { class: "primary" })), shown);
  }

  /** @param {{id: string, name: string} | null} agent */
  #export(agent) {
    const problem = h("div");
    let chosen = agent;
    const scrub = h("input", { type: "checkbox" });
    const run = async () => {
      if (!chosen) throw new RangeError("Choose an agent.");
      const answer = await fetch(address(`v1/agents/${chosen.id}/export`, { scrub_messages: scrub.checked }), { credentials: "same-origin", signal: this.signal });
      if (!answer.ok) throw new ApiError(`The agent could not be exported: status ${answer.status}.`, { status: answer.status });
      const blob = await answer.blob();
      const place = URL.createObjectURL(blob);
      const link = h("a", { href: place, download: `${chosen.name.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(0, 80) || "agent"}.af` });
      link.click();
      URL.revokeObjectURL(place);
      say(`Exported ${chosen.name}, ${bytes(blob.size)}`);
    };
    return card("Export", note("The file has the agent with its memory blocks, its tools and the messages of its default conversation. It never has secrets."), agentField(agent, (found) => (chosen = found), this.signal, "Choose an agent"), labelled("Leave the messages out", scrub, "inline"), problem, side(action(problem, "Export agent", run, { class: "primary" })));
  }
}

customElements.define("kelpie-transfer", TransferScreen);
