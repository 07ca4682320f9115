// The dialog that sets the budget of an agent.

import { ask, patch, say } from "../core/index.js";

const PERIODS = [["total", "in all"], ["hour", "in each hour"], ["day", "in each day (UTC)"], ["month", "in each month (UTC)"]];

/** @param {string} agentId @param {string} name @param {{usd?: number | null, tokens?: number | null, period?: string} | null} now */
export function askBudget(agentId, name, now) {
  return ask(
    `Budget of ${name}`,
    [
      { name: "usd", label: "At most ($)", kind: "number", value: now?.usd ?? "", hint: "Only for models with a known price." },
      { name: "tokens", label: "At most (tokens)", kind: "number", value: now?.tokens ?? "" },
      { name: "period", label: "Period", kind: "select", value: now?.period ?? "day", options: PERIODS.map(([value, label]) => ({ value: String(value), label: String(label) })) },
    ],
    "Save budget",
    async (values) => {
      const budget = { usd: Number(values.usd) || null, tokens: Number(values.tokens) || null, period: values.period };
      if (budget.usd === null && budget.tokens === null) throw new RangeError("Give a limit in dollars, in tokens, or both.");
      await patch(`v1/agents/${agentId}`, { kelpie_budget: budget });
      say(`Changed the budget of ${name}`);
      return true;
    },
  );
}
