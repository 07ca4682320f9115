// The prompt that an agent's next step will have: `#/prompt/<agent>?conversation=<id>`.

import { get } from "../core/api.js";
import { agentField } from "../core/agent_field.js";
import { h, replace, words } from "../core/dom.js";
import { tokens } from "../core/format.js";
import { lastAgent, rememberAgent } from "../core/last_agent.js";
import { empty } from "../core/notice.js";
import { card, head, note } from "../core/parts.js";
import { go, link } from "../core/router.js";
import { Screen } from "../core/screen.js";
import { time } from "../core/time.js";
import { compaction, promptView } from "./prompt/view.js";

export default class PromptScreen extends Screen {
  async show() {
    const id = this.route.path[1];
    if (!id) {
      const found = await lastAgent(this.signal);
      if (found) location.replace(link(["prompt", found.id]));
      else replace(this, h("h1", null, "Prompt"), empty("There is no agent yet.", h("a", { href: link(["agents"]) }, "Create one")));
      return;
    }
    const conversation = this.route.query.get("conversation");
    const [agent, prompt, steps] = await Promise.all([
      get(`v1/agents/${id}`, { include: "agent.tags" }, this.signal),
      get(`v1/kelpie/agents/${id}/prompt`, { conversation_id: conversation }, this.signal),
      get("v1/steps/", { agent_id: id, limit: 20, order: "desc" }, this.signal),
    ]);
    rememberAgent(id);
    this.windowTitle(`Prompt of ${agent.name}`);
    const chosen = agentField({ id, name: agent.name }, (found) => found && found.id !== id && go(["prompt", found.id]), this.signal);
    replace(
      this,
      head(["Next prompt of ", words(agent.name)], h("a", { class: "button", href: link(conversation ? ["chat", id, conversation] : ["chat", id]) }, "Chat")),
      h("div", { class: "filters" }, chosen),
      card("Prompts of the last steps", steps.length ? h("ul", { class: "plain steps" }, steps.map((/** @type {any} */ each) => h("li", null, h("a", { href: link(["steps", each.id]) }, `${each.model_handle ?? "model"}, ${tokens(each.prompt_tokens)}`), " ", time(each.kelpie_created_at), " ", h("a", { href: link(["runs", each.run_id]) }, "run")))) : note("The agent has not taken a step yet.")),
      promptView(prompt),
      await compaction(prompt, conversation, null, this.signal),
    );
  }
}

customElements.define("kelpie-prompt", PromptScreen);
