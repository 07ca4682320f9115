// The agent that was opened last, so that a screen without one in its address has something to show.

import { ApiError, get } from "./api.js";
import { h, replace } from "./dom.js";
import { empty } from "./notice.js";
import { link } from "./router.js";

const KEY = "kelpie-last-agent";

/** @param {string} id */
export function rememberAgent(id) {
  try {
    localStorage.setItem(KEY, id);
  } catch {
    // storage is blocked: the newest agent is opened next time
  }
}

/**
 * Opens a screen with the agent of last time, else the newest; says so when there is none.
 * @param {import("./screen.js").Screen} screen
 * @param {string} name its name in the address
 * @param {string} title
 * @param {import("./dom.js").Child} [create] what makes an agent
 */
export async function openLastAgent(screen, name, title, create = h("a", { href: link(["agents"]) }, "Create one")) {
  const found = await lastAgent(screen.signal);
  if (found) location.replace(link([name, found.id]));
  else replace(screen, h("h1", null, title), empty("There is no agent yet.", create));
}

/** @param {AbortSignal} signal */
async function lastAgent(signal) {
  const id = recalled();
  if (id) {
    try {
      return await get(`v1/agents/${id}`, { include: "agent.tags" }, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || ![403, 404, 422].includes(error.status)) throw error;
    }
  }
  const newest = await get("v1/agents/", { limit: 1, include: "agent.tags" }, signal);
  return newest[0] ?? null;
}

function recalled() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
