// The parts that screens are made of, in one place to import them from.

export * from "./agent_field.js";
export * from "./api.js";
export * from "./chart.js";
export * from "./connection.js";
export * from "./dialog.js";
export * from "./diff.js";
export * from "./dom.js";
export * from "./format.js";
export * from "./last_agent.js";
export * from "./long_text.js";
export * from "./markdown.js";
export * from "./notice.js";
export * from "./parts.js";
export * from "./router.js";
export * from "./screen.js";
export * from "./shortcuts.js";
export * from "./stop_reasons.js";
export * from "./table.js";
export * from "./time.js";
