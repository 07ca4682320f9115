// The prompt that an agent's next step will have: `#/prompt/<agent>?conversation=<id>`.

import { agentField, card, chatPath, go, h, head, linkTo, note, openLastAgent, rememberAgent, replace, Screen, time, tokens, words } from "../core/index.js";
import { compaction, promptView } from "./prompt/view.js";

export default class PromptScreen extends Screen {
  async show() {
    const id = this.route.path[1];
    if (!id) return openLastAgent(this, "prompt", "Prompt");
    const conversation = this.route.query.get("conversation");
    const [agent, prompt, steps] = await Promise.all([
      this.agent(id),
      this.get(`v1/kelpie/agents/${id}/prompt`, { conversation_id: conversation }),
      this.get("v1/steps/", { agent_id: id, limit: 20, order: "desc" }),
    ]);
    rememberAgent(id);
    this.windowTitle(`Prompt of ${agent.name}`);
    const chosen = agentField({ id, name: agent.name }, (found) => found && found.id !== id && go(["prompt", found.id]), this.signal);
    replace(
      this,
      head(["Next prompt of ", words(agent.name)], linkTo(chatPath(id, conversation), "Chat", { class: "button" })),
      h("div", { class: "filters" }, chosen),
      promptView(prompt),
      await compaction(prompt, conversation, null, this.signal),
      card("Prompts of the last steps", steps.length ? h("ul", { class: "plain steps" }, steps.map((/** @type {any} */ each) => h("li", null, linkTo(["steps", each.id], `${each.model_handle ?? "model"}, ${tokens(each.prompt_tokens)}`), " ", time(each.kelpie_created_at), " ", linkTo(["runs", each.run_id], "run")))) : note("The agent has not taken a step yet.")),
    );
  }
}

customElements.define("kelpie-prompt", PromptScreen);
