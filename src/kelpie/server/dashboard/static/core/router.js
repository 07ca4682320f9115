// Addresses inside the page: `#/agents/<id>/chat?conversation=...`. The part after `#` never reaches the server, so deep
// links work behind every path prefix.

/** @typedef {{path: string[], query: URLSearchParams}} Route */

/** @returns {Route} */
export function current() {
  return parse(location.hash);
}

/** @param {string} hash @returns {Route} */
export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = (path ?? "").split("/").filter(Boolean).map(decoded);
  return { path: parts, query: new URLSearchParams(query ?? "") };
}

/**
 * The address of a place: `link(["agents", id, "chat"], {conversation})`.
 * @param {string[]} path
 * @param {{[name: string]: string | number | null | undefined}} [query]
 */
export function link(path, query = {}) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") asked.set(name, String(value));
  }
  const text = asked.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** The place of a conversation; without one, of the default conversation. @param {string} agentId @param {string | null} [conversation] */
export function chatPath(agentId, conversation) {
  return conversation && conversation !== "default" ? ["chat", agentId, conversation] : ["chat", agentId];
}

/** @param {string[]} path @param {{[name: string]: string | number | null | undefined}} [query] */
export function go(path, query) {
  location.hash = link(path, query);
}

/**
 * Changes the query of the current place without a new entry in the history and without opening the screen again.
 * @param {{[name: string]: string | number | null | undefined}} changes
 */
export function keep(changes) {
  const { path, query } = current();
  const merged = { ...Object.fromEntries(query), ...changes };
  history.replaceState(history.state, "", link(path, merged));
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
