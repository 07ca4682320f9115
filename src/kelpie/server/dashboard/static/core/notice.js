// What happened: a status line for successes, and failures with their remedies where the person is looking.

import { ApiError } from "./api.js";
import { h, replace, visible } from "./dom.js";

const SHOWN_MS = 6000;
let timer = 0;

/** A short sentence in the status line: "Created agent bea". @param {string} text */
export function say(text) {
  const line = document.getElementById("status");
  if (!line) return;
  replace(line, visible(text));
  line.classList.add("shown");
  clearTimeout(timer);
  timer = window.setTimeout(() => {
    line.classList.remove("shown");
    replace(line);
  }, SHOWN_MS);
}

/**
 * An error with what to do about it. `again` adds a button that tries again and removes the notice.
 * @param {unknown} error
 * @param {() => void} [again]
 */
export function failure(error, again) {
  const told = error instanceof Error ? error.message : String(error);
  const remedy = error instanceof ApiError ? error.remedy : error instanceof RangeError ? "Change the input as the message says, then try again." : "Reload the page. If it happens again, report it with the steps that led here.";
  const box = h("div", { class: "failure", role: "alert" });
  box.append(
    h("p", { class: "failure-what" }, visible(told)),
    h("p", { class: "failure-remedy" }, code(remedy)),
    h(
      "div",
      { class: "row" },
      again &&
        h("button", { type: "button", on: { click: () => (box.remove(), again()) } }, "Try again"),
      h("button", { type: "button", class: "quiet", on: { click: () => box.remove() } }, "Dismiss"),
    ),
  );
  return box;
}

/** Puts a failure into a place, and removes the one that stood there. @param {Element} place @param {unknown} error */
export function fail(place, error) {
  if (error instanceof DOMException && error.name === "AbortError") return;
  place.querySelector(":scope > .failure")?.remove();
  place.prepend(failure(error));
}

/** An empty state: what would be here, and how it gets here. @param {...import("./dom.js").Child} what */
export function empty(...what) {
  return h("div", { class: "empty" }, what.map((each) => (typeof each === "string" ? h("p", null, each) : each)));
}

/** A text with `commands` marked. @param {string} text */
function code(text) {
  return text.split("`").map((part, place) => (place % 2 ? h("code", null, part) : part));
}
