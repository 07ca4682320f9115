// States and stop reasons in words, with a color that says whether a person must care.

import { h } from "./dom.js";

/** @type {{[state: string]: "good" | "warn" | "bad" | ""}} */
const TONES = { completed: "good", success: "good", running: "warn", created: "warn", waiting: "warn", pending: "warn", failed: "bad", error: "bad", cancelled: "" };

/** @type {{[reason: string]: string}} */
const REASONS = {
  end_turn: "answered",
  error: "failed",
  llm_api_error: "the model provider failed",
  invalid_llm_response: "the model's answer was invalid",
  invalid_tool_call: "the model's tool call was invalid",
  max_steps: "reached the step limit",
  max_tokens_exceeded: "reached the token limit",
  no_tool_call: "no tool was called",
  tool_rule: "a tool rule ended the turn",
  cancelled: "cancelled",
  insufficient_credits: "the budget is used up",
  requires_approval: "waits for approval",
  context_window_overflow_in_system_prompt: "instructions and memory are larger than the context window",
};

/** @param {string | null | undefined} state */
export function stateTag(state) {
  const shown = state ?? "unknown";
  return h("span", { class: `tag ${TONES[shown] ?? ""}` }, shown === "created" ? "waiting" : shown);
}

/** @param {string | null | undefined} reason */
export function reasonText(reason) {
  return reason ? (REASONS[reason] ?? reason.replaceAll("_", " ")) : "";
}
