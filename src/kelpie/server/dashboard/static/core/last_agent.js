// The agent that was opened last, so that a screen without one in its address has something to show.

import { ApiError, get } from "./api.js";

const KEY = "kelpie-last-agent";

/** @param {string} id */
export function rememberAgent(id) {
  try {
    localStorage.setItem(KEY, id);
  } catch {
    // storage is blocked: the newest agent is opened next time
  }
}

/** The agent of last time, else the newest; null when there is none. @param {AbortSignal} signal @returns {Promise<any | null>} */
export async function lastAgent(signal) {
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
