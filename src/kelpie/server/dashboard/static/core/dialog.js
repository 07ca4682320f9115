// Dialogs: the browser's own <dialog>, which keeps the focus inside and gives it back. A failed action is shown in it.

import { ApiError } from "./api.js";
import { freshId, h, labelled, optionsOf, replace } from "./dom.js";
import { failure, say } from "./notice.js";

/**
 * Opens a dialog; `content` closes it with `dialog.close(value)`. Resolves with that value, "" when it was dismissed.
 * @param {string} title
 * @param {...import("./dom.js").Child} content
 * @returns {{dialog: HTMLDialogElement, closed: Promise<string>}}
 */
export function openDialog(title, ...content) {
  const id = freshId("dialog");
  const close = h("button", { type: "button", class: "quiet close", "aria-label": "Close", on: { click: () => dialog.close("") } }, "✕");
  const dialog = h(
    "dialog",
    { "aria-labelledby": id, on: { click: (/** @type {MouseEvent} */ event) => event.target === dialog && dialog.close("") } },
    h("div", { class: "dialog-body" }, h("header", null, h("h2", { id }, title), close), content),
  );
  document.body.append(dialog);
  dialog.showModal();
  const closed = new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue);
      dialog.remove();
    });
  });
  return { dialog, closed: /** @type {Promise<string>} */ (closed) };
}

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {"text" | "textarea" | "select" | "checkbox" | "number" | "password" | "file"} [kind]
 * @property {string | number | boolean | null} [value]
 * @property {string} [hint]
 * @property {boolean} [required]
 * @property {{value: string, label: string}[]} [options] of a select, or suggestions of a text
 * @property {number} [rows]
 * @property {string} [accept]
 */

/** @typedef {{[name: string]: string | boolean | File | null}} Values */

/**
 * Asks for a few values. `act` runs when the person confirms; its failure is shown and the dialog stays open. Resolves
 * with what `act` returned, or null when the dialog was dismissed.
 * @template T
 * @param {string} title
 * @param {Field[]} fields
 * @param {string} action the word on the button
 * @param {(values: Values) => Promise<T>} act
 * @param {{danger?: boolean, intro?: import("./dom.js").Child}} [look]
 * @returns {Promise<T | null>}
 */
export async function ask(title, fields, action, act, look = {}) {
  const problem = h("div");
  const controls = fields.map(fieldOf);
  const submit = h("button", { type: "submit", class: look.danger ? "danger" : "primary" }, action);
  /** @type {T | null} */
  let result = null;
  const form = h(
    "form",
    {
      method: "dialog",
      class: "form",
      on: {
        submit: async (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          submit.disabled = true;
          replace(problem);
          try {
            result = await act(Object.fromEntries(controls.map((each) => [each.name, each.read()])));
            dialog.close("done");
          } catch (error) {
            if (!(error instanceof ApiError || error instanceof RangeError)) throw error;
            replace(problem, failure(error));
          } finally {
            submit.disabled = false;
          }
        },
      },
    },
    look.intro,
    controls.map((each) => each.node),
    problem,
    h("div", { class: "row end" }, h("button", { type: "button", class: "quiet", on: { click: () => dialog.close("") } }, "Cancel"), submit),
  );
  const { dialog, closed } = openDialog(title, form);
  const first = form.querySelector("input, textarea, select");
  (first instanceof HTMLElement ? first : submit).focus();
  return (await closed) === "done" ? result : null;
}

/**
 * Asks before something that cannot be undone. Resolves with true when it was done.
 * @param {string} title
 * @param {import("./dom.js").Child} text
 * @param {string} action
 * @param {() => Promise<unknown>} act
 */
export async function confirm(title, text, action, act) {
  const done = await ask(title, [], action, async () => (await act(), true), { danger: true, intro: h("p", null, text) });
  return done === true;
}

/** Shows a secret this once. @param {string} title @param {string} secret @param {string} [warning] */
export function shownOnce(title, secret, warning = "") {
  const copy = h("button", { type: "button", on: { click: async () => { await navigator.clipboard.writeText(secret); say("Copied"); } } }, "Copy");
  openDialog(title, h("p", null, `Copy it now: it is not shown again. ${warning}`), h("code", { class: "secret" }, secret), navigator.clipboard && h("div", { class: "row" }, copy));
}

/** @param {Field} field */
function fieldOf(field) {
  const { control, list } = controlOf(field, { name: field.name, required: field.required });
  const read = () => {
    if (control instanceof HTMLInputElement && control.type === "checkbox") return control.checked;
    if (control instanceof HTMLInputElement && control.type === "file") return control.files?.[0] ?? null;
    return control.value;
  };
  const node = labelled(field.label, control, field.kind === "checkbox" ? "inline" : "", field.hint);
  if (list) node.append(list);
  return { name: field.name, read, node };
}

/**
 * @param {Field} field
 * @param {import("./dom.js").Props} common
 * @returns {{control: HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement, list: HTMLElement | null}}
 */
function controlOf(field, common) {
  const value = field.value ?? "";
  if (field.kind === "textarea") return { control: h("textarea", { ...common, rows: field.rows ?? 4, value: String(value) }), list: null };
  if (field.kind === "select") {
    const options = (field.options ?? []).map((each) => [each.value, each.label]);
    return { control: h("select", common, optionsOf(options, String(value))), list: null };
  }
  if (field.kind === "checkbox") return { control: h("input", { ...common, type: "checkbox", checked: value === true }), list: null };
  if (field.kind === "file") return { control: h("input", { ...common, type: "file", accept: field.accept }), list: null };
  const listId = field.options ? freshId("options") : null;
  const list = field.options ? h("datalist", { id: listId }, field.options.map((each) => h("option", { value: each.value }, each.label))) : null;
  const kind = field.kind ?? "text";
  return {
    control: h("input", { ...common, type: kind, value: String(value), list: listId, step: kind === "number" ? "any" : null, autocomplete: "off" }),
    list,
  };
}
