// <kelpie-time>: a moment as "3 min ago", with the exact time in the reader's zone beside it for those who ask.

import { h, replace } from "./dom.js";
import { ago, moment } from "./format.js";

const EVERY_MS = 15_000;

export class KelpieTime extends HTMLElement {
  #timer = 0;
  /** @type {string | null} */
  #when = null;

  /** @param {string | null} when */
  set when(when) {
    this.#when = when;
    this.#draw();
  }

  connectedCallback() {
    this.#draw();
    this.#timer = window.setInterval(() => this.#draw(), EVERY_MS);
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }

  #draw() {
    const text = this.#when ? ago(this.#when) : "–";
    if (this.textContent !== text) replace(this, h("time", { datetime: this.#when, title: moment(this.#when) }, text));
  }
}

customElements.define("kelpie-time", KelpieTime);

/** @param {string | null | undefined} when */
export function time(when) {
  const made = new KelpieTime();
  made.when = when ?? null;
  return made;
}
