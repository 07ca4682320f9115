// All screens, in the order of the navigation: one line each. The first part of an address (`#/runs/...`) is the `name`,
// and that of the module, which exports its screen (core/screen.js) as the default. It is loaded when it is first opened.

/**
 * @typedef {object} Entry
 * @property {string} name
 * @property {string} title
 * @property {string} [keys] shortcut
 * @property {boolean} [hidden] whether it is left out of the navigation
 */

/** @type {Entry[]} */
export const SCREENS = [
  { name: "chat", title: "Chat", keys: "g c" },
  { name: "agents", title: "Agents", keys: "g a" },
  { name: "runs", title: "Runs", keys: "g r" },
  { name: "prompt", title: "Prompt", keys: "g p" },
  { name: "memory", title: "Memory", keys: "g m" },
  { name: "inbox", title: "Inbox", keys: "g i" },
  { name: "schedules", title: "Schedules", keys: "g s" },
  { name: "batches", title: "Batches", keys: "g b" },
  { name: "projects", title: "Projects", keys: "g o" },
  { name: "usage", title: "Usage and cost", keys: "g u" },
  { name: "tools", title: "Tools and MCP", keys: "g t" },
  { name: "health", title: "Health", keys: "g h" },
  { name: "access", title: "Access", keys: "g k" },
  { name: "transfer", title: "Import and export", keys: "g e" },
  { name: "logs", title: "Logs", keys: "g l" },
  { name: "steps", title: "Prompt of a step", hidden: true },
];
