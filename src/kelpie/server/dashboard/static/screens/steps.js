// The exact prompt of one step, what came of it, and the difference to another step: `#/steps/<id>?with=<id>`.

import { card, chatPath, cost, h, head, keep, labelled, linkTo, moment, note, replace, Screen, stateTag, tokens, words } from "../core/index.js";
import { transcript } from "./chat/transcript.js";
import { comparison, compaction, promptView } from "./prompt/view.js";

export default class StepScreen extends Screen {
  async show() {
    const id = this.route.path[1] ?? "";
    const [prompt, step, messages] = await Promise.all([this.get(`v1/kelpie/steps/${id}/prompt`), this.get(`v1/steps/${id}`), this.get(`v1/steps/${id}/messages`, { limit: 100 })]);
    const [agent, others, run] = await Promise.all([this.agent(step.agent_id), this.get("v1/steps/", { agent_id: step.agent_id, limit: 50, order: "desc" }), this.get(`v1/runs/${step.run_id}`)]);
    this.windowTitle(`Prompt of a step of ${agent.name}`);
    const said = transcript();
    said.rest();
    const place = h("div");
    const wanted = this.asked("with");
    const pick = h("select", { on: { change: () => void this.attempt(() => this.#compare(place, prompt, pick.value)) } }, h("option", { value: "" }, "Choose a step"), others.filter((/** @type {any} */ each) => each.id !== id).map((/** @type {any} */ each) => h("option", { value: each.id, selected: each.id === wanted }, `${each.run_id === step.run_id ? "same run, " : ""}${moment(each.kelpie_created_at)}, ${tokens(each.prompt_tokens)}`)));
    replace(
      this,
      head(["Prompt of a step of ", words(agent.name)], linkTo(["runs", step.run_id], "Run", { class: "button" }), linkTo(chatPath(step.agent_id, run.conversation_id), "Chat", { class: "button" })),
      note(stateTag(step.status), " ", words(step.model_handle), `, ${moment(prompt.created_at)}, ${tokens(step.prompt_tokens)} in, ${tokens(step.completion_tokens)} out, ${cost(step.kelpie_cost_usd)}`),
      card("What came of it", h("div", { class: "said" }, said)),
      promptView(prompt),
      prompt.why_not ? null : await compaction(prompt, run.conversation_id, prompt.created_at, this.signal),
      card("Compare", labelled("With the prompt of another step of this agent", pick)),
      place,
    );
    said.page(messages.filter((/** @type {any} */ each) => each.message_type !== "system_message"), { more: false });
    said.waiting(new Set());
    if (wanted) await this.#compare(place, prompt, wanted);
  }

  /** @param {HTMLElement} place @param {any} prompt @param {string} other */
  async #compare(place, prompt, other) {
    keep({ with: other });
    if (!other) {
      replace(place);
      return;
    }
    const found = await this.get(`v1/kelpie/steps/${other}/prompt`);
    const [before, after] = found.created_at <= prompt.created_at ? [found, prompt] : [prompt, found];
    replace(place, comparison(before, after, `From the step of ${moment(before.created_at)} to that of ${moment(after.created_at)}`));
  }
}

customElements.define("kelpie-step", StepScreen);
