// Numbers with their units, and times in the reader's zone.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const ONE = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const SIZES = ["bytes", "KB", "MB", "GB", "TB"];
const NONE = "–";

/** @param {number | null | undefined} value */
export function number(value) {
  return value === null || value === undefined ? NONE : WHOLE.format(value);
}

/** "1 agent", "1,200 agents". @param {number | null | undefined} value @param {string} one @param {string} [many] */
export function count(value, one, many = `${one}s`) {
  return value === null || value === undefined ? NONE : `${WHOLE.format(value)} ${value === 1 ? one : many}`;
}

/** @param {number | null | undefined} value */
export function tokens(value) {
  return count(value, "token");
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let rest = value;
  let place = 0;
  while (rest >= 1000 && place < SIZES.length - 1) {
    rest /= 1000;
    place += 1;
  }
  return place === 0 ? count(value, "byte") : `${ONE.format(rest)} ${SIZES[place]}`;
}

/** Dollars; small amounts keep two digits that count. @param {number | null | undefined} usd */
export function cost(usd) {
  if (usd === null || usd === undefined) return "unknown price";
  if (usd === 0) return "$0";
  return usd < 0.01 ? `$${usd.toPrecision(2).replace(/e-.*/, "")}`.slice(0, 12) : `$${usd.toFixed(2)}`;
}

/** @param {number | null | undefined} part between 0 and 1 */
export function percent(part) {
  return part === null || part === undefined || Number.isNaN(part) ? NONE : `${ONE.format(part * 100)} %`;
}

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return NONE;
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${WHOLE.format(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** A moment in the reader's zone. @param {string | number | Date | null | undefined} when */
export function moment(when) {
  const date = parsed(when);
  return date ? MOMENT.format(date) : NONE;
}

/** @param {string | number | Date | null | undefined} when */
export function day(when) {
  const date = parsed(when);
  return date ? DAY.format(date) : NONE;
}

/** @param {string | number | Date | null | undefined} when */
export function clock(when) {
  const date = parsed(when);
  return date ? CLOCK.format(date) : NONE;
}

/** "3 min ago". @param {string | number | Date | null | undefined} when @param {number} [now] */
export function ago(when, now = Date.now()) {
  const date = parsed(when);
  if (!date) return NONE;
  const s = (now - date.getTime()) / 1000;
  if (s < -5) return `in ${span(-s)}`;
  return s < 5 ? "just now" : `${span(s)} ago`;
}

/** Milliseconds between two moments; null if one is missing. @param {string | null | undefined} from @param {string | null | undefined} to */
export function between(from, to) {
  const [start, end] = [parsed(from), parsed(to)];
  return start && end ? end.getTime() - start.getTime() : null;
}

/** The beginning of a text, with a sign that something is missing. @param {unknown} text @param {number} chars */
export function shortened(text, chars) {
  const all = String(text ?? "");
  return all.length > chars ? `${all.slice(0, chars).trimEnd()}…` : all;
}

/** The end of a long id, enough to tell it from its neighbours. @param {string | null | undefined} id */
export function shortId(id) {
  if (!id) return NONE;
  const [kind, ...rest] = id.split("-");
  return rest.length > 1 ? `${kind}-${rest[0]}` : id;
}

/** @param {number} s */
function span(s) {
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

/** @param {string | number | Date | null | undefined} when @returns {Date | null} */
function parsed(when) {
  if (when === null || when === undefined || when === "") return null;
  const date = when instanceof Date ? when : new Date(when);
  return Number.isNaN(date.getTime()) ? null : date;
}
