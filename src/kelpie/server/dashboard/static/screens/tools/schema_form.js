// A form from a JSON schema: one field per property. What a field cannot express is written as JSON.

import { freshId, h, words } from "../../core/index.js";

const LONG = /text|content|body|code|query|message|prompt|source/i;

/**
 * @param {any} schema
 * @returns {{node: HTMLElement, read: () => {[name: string]: unknown}}} `read` raises RangeError for a field that is wrong
 */
export function schemaForm(schema) {
  const required = new Set(schema?.required ?? []);
  const fields = Object.entries(schema?.properties ?? {}).map(([name, one]) => fieldOf(name, one, required.has(name)));
  return {
    node: h("div", { class: "form" }, fields.length ? fields.map((each) => each.node) : h("p", { class: "hint" }, "It takes no arguments.")),
    read: () => Object.fromEntries(fields.map((each) => [each.name, each.read()]).filter(([, value]) => value !== undefined)),
  };
}

/** The type of a property; the first that is not null of several. @param {any} schema @returns {string} */
function kindOf(schema) {
  const listed = Array.isArray(schema?.type) ? schema.type : [schema?.type];
  const kind = listed.find((/** @type {string} */ each) => each && each !== "null");
  if (kind) return kind;
  const other = (schema?.anyOf ?? schema?.oneOf ?? []).map(kindOf).find((/** @type {string} */ each) => each !== "json");
  return other ?? "json";
}

/** @param {string} name @param {any} schema @param {boolean} required */
function fieldOf(name, schema, required) {
  const id = freshId("argument");
  const kind = kindOf(schema);
  const hint = [schema?.description ? String(schema.description).slice(0, 500) : "", ["array", "object", "json"].includes(kind) ? "Write it as JSON." : ""].filter(Boolean).join(" ");
  const common = { id, "aria-describedby": hint ? `${id}-hint` : null };
  const value = schema?.default ?? "";
  /** @type {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} */
  let control;
  if (Array.isArray(schema?.enum)) control = h("select", common, !required && h("option", { value: "" }, "(not given)"), schema.enum.map((/** @type {unknown} */ each) => h("option", { value: JSON.stringify(each), selected: each === value }, String(each))));
  else if (kind === "boolean") control = h("select", common, !required && h("option", { value: "" }, "(not given)"), [true, false].map((each) => h("option", { value: String(each), selected: value === each }, each ? "yes" : "no")));
  else if (kind === "integer" || kind === "number") control = h("input", { ...common, type: "number", step: kind === "integer" ? 1 : "any", value: String(value) });
  else if (kind === "string" && !LONG.test(name)) control = h("input", { ...common, type: "text", value: String(value), autocomplete: "off" });
  else control = h("textarea", { ...common, rows: 3, value: kind === "string" ? String(value) : value === "" ? "" : JSON.stringify(value) });
  const node = h("div", { class: "field" }, h("label", { for: id }, words(schema?.title ?? name), " ", h("span", { class: "hint" }, `${kind}${required ? ", required" : ""}`)), control, hint && h("small", { id: `${id}-hint`, class: "hint" }, words(hint)));
  return { name, node, read: () => valueOf(name, kind, control.value, required, Array.isArray(schema?.enum)) };
}

/** @param {string} name @param {string} kind @param {string} text @param {boolean} required @param {boolean} listed */
function valueOf(name, kind, text, required, listed) {
  if (text === "") {
    if (required && kind === "string") return "";
    if (required) throw new RangeError(`${name} is required. Fill it in.`);
    return undefined;
  }
  if (kind === "string" && !listed) return text;
  if (kind === "integer" || kind === "number") return Number(text);
  try {
    return JSON.parse(text);
  } catch {
    throw new RangeError(`${name} is not JSON. Write texts in double quotes.`);
  }
}
