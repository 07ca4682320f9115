// Builds DOM nodes. Nothing here, or anywhere else in the dashboard, turns a string into HTML: model output is hostile,
// and the page's policy (trusted types) refuses it as well.

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */
/** @typedef {{[name: string]: unknown, class?: string | null, on?: {[event: string]: (event: any) => void}}} Props */

const PROPERTIES = new Set(["value", "checked", "selected", "indeterminate", "open"]);
const FORBIDDEN = /^(on.*|style|srcdoc|innerhtml|outerhtml)$/i;
const ADDRESSES = new Set(["href", "src", "action", "formaction"]);
const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element with its attributes, listeners (`on`) and children.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, props = null, ...children) {
  return fill(document.createElement(tag), props, children);
}

/**
 * A custom element; `make` is its class.
 * @template {HTMLElement} E
 * @param {new () => E} make
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {E}
 */
export function element(make, props = null, ...children) {
  return fill(new make(), props, children);
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function svg(tag, props = null, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/**
 * Replaces all children of a node.
 * @template {Element | DocumentFragment} E
 * @param {E} node
 * @param {...Child} children
 * @returns {E}
 */
export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

/**
 * @template {Element} E
 * @param {E} node
 * @param {Props | null} props
 * @param {Child[]} children
 * @returns {E}
 */
function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(props?.on ?? {})) node.addEventListener(event, listener);
    } else if (value !== null && value !== undefined && value !== false) {
      set(node, name, value);
    }
  }
  append(node, children);
  return node;
}

/** @param {Element} node @param {string} name @param {unknown} value */
function set(node, name, value) {
  if (FORBIDDEN.test(name)) throw new Error(`The attribute ${name} is not allowed.`);
  if (PROPERTIES.has(name)) {
    /** @type {any} */ (node)[name] = value;
  } else {
    const text = value === true ? "" : String(value);
    if (ADDRESSES.has(name.toLowerCase()) && !isSafeAddress(text)) return;
    node.setAttribute(name, text);
  }
}

/** @param {Element | DocumentFragment} node @param {Child[]} children */
function append(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(node, child);
    else if (child instanceof Node) node.append(child);
    else if (child !== null && child !== undefined && child !== false) node.append(String(child));
  }
}

/**
 * True for addresses that run nothing: links inside the page, the web, mail, and images as data.
 * @param {string} text
 */
export function isSafeAddress(text) {
  const plain = text.replace(/[\u0000-\u0020\u007f-\u00a0\u200b-\u200f\u2028-\u202f]/g, "").toLowerCase();
  if (/^[a-z][a-z0-9+.-]*:/.test(plain)) return /^(https?:|mailto:|data:image\/(png|jpeg|gif|webp);base64,|blob:)/.test(plain);
  return true;
}

let lastId = 0;

/** An id for an element that a label or a description refers to. @param {string} word */
export function freshId(word) {
  lastId += 1;
  return `${word}-${lastId}`;
}

/**
 * Text of a person, a model or a tool: its direction ends with it, and it cannot write over its surroundings.
 * @param {unknown} text
 * @param {string} [name] class
 */
export function words(text, name) {
  return h("bdi", { class: name, dir: "auto" }, visible(String(text ?? "")));
}

/**
 * A text without terminal colors; other control characters become visible signs.
 * @param {string} text
 */
export function visible(text) {
  return text
    .replace(/\u001b\[[0-9;:?]*[A-Za-z]/g, "")
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0)))
    .replace(/\r\n?/g, "\n")
    .replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

/** A control with its label. @param {string} label @param {HTMLElement} control @param {string} [look] a class @param {string} [about] a hint */
export function labelled(label, control, look = "", about = "") {
  control.id ||= freshId("field");
  const name = h("label", { for: control.id }, label);
  if (about) control.setAttribute("aria-describedby", `${control.id}-hint`);
  return h("div", { class: `field ${look}` }, look === "inline" ? [control, name] : [name, control], about && h("small", { id: `${control.id}-hint`, class: "hint" }, about));
}

/** Options of a select. @param {(string | undefined)[][]} options each its value and its words @param {unknown} chosen */
export const optionsOf = (options, chosen) => options.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
