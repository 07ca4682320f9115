// Where a person writes: text and images, sent with Enter.

import { button, bytes, fail, freshId, h, replace } from "../../core/index.js";

const IMAGE_BYTES_MAX = 8_000_000;
const IMAGES_MAX = 8;
const KINDS = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** @typedef {{name: string, kind: string, data: string}} Picture */

/**
 * @param {(content: string | unknown[]) => void} send
 * @param {() => void} stop
 */
export function composer(send, stop) {
  /** @type {Picture[]} */
  let pictures = [];
  const id = freshId("composer");
  const text = h("textarea", { id, rows: 2, placeholder: "Write a message", "aria-label": "Message", on: {
    keydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        submit();
      }
    },
    paste: (/** @type {ClipboardEvent} */ event) => void add(event.clipboardData?.files),
  } });
  const file = h("input", { type: "file", accept: KINDS.join(","), multiple: true, class: "hidden", "aria-label": "Add images", on: { change: async () => {
    await add(file.files);
    file.value = "";
  } } });
  const chosen = h("div", { class: "row chosen" });
  const sendButton = h("button", { type: "submit", class: "primary" }, "Send");
  const stopButton = h("button", { type: "button", class: "danger", hidden: true, on: { click: stop } }, "Stop");
  const form = h("form", { class: "composer", on: { submit: (/** @type {Event} */ event) => {
    event.preventDefault();
    submit();
  } } }, chosen, text, h("div", { class: "row" }, button("Add image", () => file.click()), file, h("span", { class: "hint grow" }, h("kbd", null, "Enter"), " sends, ", h("kbd", null, "Shift"), "+", h("kbd", null, "Enter"), " starts a line"), stopButton, sendButton));

  function submit() {
    const said = text.value.trim();
    if ((!said && pictures.length === 0) || sendButton.disabled) return;
    const parts = pictures.map((each) => ({ type: "image", source: { type: "base64", media_type: each.kind, data: each.data } }));
    send(parts.length ? [...(said ? [{ type: "text", text: said }] : []), ...parts] : said);
    text.value = "";
    pictures = [];
    draw();
  }

  /** @param {FileList | null | undefined} files */
  async function add(files) {
    for (const each of files ?? []) {
      if (!KINDS.includes(each.type) || each.size > IMAGE_BYTES_MAX || pictures.length >= IMAGES_MAX) {
        fail(form, new Error(`${each.name} was not added: send up to ${IMAGES_MAX} images (PNG, JPEG, GIF or WebP) of at most ${bytes(IMAGE_BYTES_MAX)}.`));
        continue;
      }
      pictures = [...pictures, { name: each.name, kind: each.type, data: await base64(each) }];
    }
    draw();
  }

  function draw() {
    replace(chosen, pictures.map((each, place) => h("span", { class: "tag" }, each.name.slice(0, 60), " ", h("button", { type: "button", class: "link", "aria-label": `Remove ${each.name}`, on: { click: () => {
      pictures = pictures.filter((_, other) => other !== place);
      draw();
    } } }, "✕"))));
  }

  return {
    node: form,
    focus: () => text.focus(),
    /** Gives back what could not be sent. @param {string} said */
    restore: (said) => {
      if (!text.value) text.value = said;
    },
    /** @param {boolean} running */
    running: (running) => {
      sendButton.disabled = running;
      stopButton.hidden = !running;
    },
  };
}

/** @param {File} file @returns {Promise<string>} */
function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^data:[^,]*,/, ""));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
