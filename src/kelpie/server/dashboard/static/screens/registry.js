// All screens, in the order of the navigation: one line each. The first part of an address (`#/runs/...`) is its `name`.
// A module exports its screen, a subclass of core/screen.js, as the default; it is loaded when it is first opened.

/**
 * @typedef {object} Entry
 * @property {string} name
 * @property {string} title
 * @property {string} [keys] shortcut
 * @property {boolean} nav whether it stands in the navigation
 * @property {() => Promise<{default: new () => import("../core/screen.js").Screen}>} load
 */

/** @type {Entry[]} */
export const SCREENS = [
  { name: "chat", title: "Chat", keys: "g c", nav: true, load: () => import("./chat.js") },
  { name: "agents", title: "Agents", keys: "g a", nav: true, load: () => import("./agents.js") },
  { name: "runs", title: "Runs", keys: "g r", nav: true, load: () => import("./runs.js") },
  { name: "prompt", title: "Prompt", keys: "g p", nav: true, load: () => import("./prompt.js") },
  { name: "memory", title: "Memory", keys: "g m", nav: true, load: () => import("./memory.js") },
  { name: "inbox", title: "Inbox", keys: "g i", nav: true, load: () => import("./inbox.js") },
  { name: "schedules", title: "Schedules", keys: "g s", nav: true, load: () => import("./schedules.js") },
  { name: "batches", title: "Batches", keys: "g b", nav: true, load: () => import("./batches.js") },
  { name: "projects", title: "Projects", keys: "g o", nav: true, load: () => import("./projects.js") },
  { name: "usage", title: "Usage and cost", keys: "g u", nav: true, load: () => import("./usage.js") },
  { name: "tools", title: "Tools and MCP", keys: "g t", nav: true, load: () => import("./tools.js") },
  { name: "health", title: "Health", keys: "g h", nav: true, load: () => import("./health.js") },
  { name: "access", title: "Access", keys: "g k", nav: true, load: () => import("./access.js") },
  { name: "transfer", title: "Import and export", keys: "g e", nav: true, load: () => import("./transfer.js") },
  { name: "logs", title: "Logs", keys: "g l", nav: true, load: () => import("./logs.js") },
  { name: "steps", title: "Prompt of a step", nav: false, load: () => import("./step.js") },
];
