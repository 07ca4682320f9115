// Markdown to DOM nodes. The text comes from a model, so: no HTML, no remote images (a link in their place), only links
// of the web, and bounds on length and depth. Work is linear in the length of the text.

import { h, isSafeAddress, visible } from "./dom.js";

const CHARS_MAX = 200_000;
const DEPTH_MAX = 8;
const TABLE_CELLS_MAX = 5000;
const INLINE =
  /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|!\[([^\]\n]{0,500})\]\(([^)\s]{1,100000})(?:\s+"[^"\n]{0,300}")?\)|\[([^\]\n]{1,1000})\]\(([^)\s]{1,4000})(?:\s+"[^"\n]{0,300}")?\)|\*\*(?=\S)([^*\n]{1,4000}?)\*\*|__(?=\S)([^_\n]{1,4000}?)__|\*(?=[^\s*])([^*\n]{1,4000}?)\*|(?<![\w_])_(?=[^\s_])([^_\n]{1,4000}?)_(?![\w_])|~~(?=\S)([^~\n]{1,4000}?)~~|\bhttps?:\/\/[^\s<>"'`)\]]{1,2000}|\\([\\`*_{}[\]()#+\-.!~|])/g;

/** @param {string} text @returns {DocumentFragment} */
export function markdown(text) {
  const made = document.createDocumentFragment();
  const shown = visible(text.length > CHARS_MAX ? text.slice(0, CHARS_MAX) : text);
  made.append(...blocks(shown.split("\n"), 0));
  if (text.length > CHARS_MAX) made.append(h("p", { class: "hint" }, "The rest is too long to format; copy the text to read it."));
  return made;
}

/** @param {string[]} lines @param {number} depth @returns {Node[]} */
function blocks(lines, depth) {
  if (depth > DEPTH_MAX) return [h("p", null, lines.join("\n"))];
  /** @type {Node[]} */
  const made = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at] ?? "";
    if (!line.trim()) {
      at += 1;
      continue;
    }
    const found = fence(lines, at) ?? heading(lines, at) ?? rule(lines, at) ?? quote(lines, at, depth) ?? table(lines, at) ?? list(lines, at, depth) ?? paragraph(lines, at);
    made.push(found.node);
    at = found.next;
  }
  return made;
}

/** @typedef {{node: Node, next: number}} Block */

/** @param {string[]} lines @param {number} at @returns {Block | null} */
function fence(lines, at) {
  const found = /^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]{0,40})/.exec(lines[at] ?? "");
  if (!found) return null;
  const mark = found[1] ?? "```";
  let end = at + 1;
  while (end < lines.length && !(lines[end] ?? "").trimStart().startsWith(mark)) end += 1;
  const code = h("code", { "data-language": found[2] || null }, lines.slice(at + 1, end).join("\n"));
  return { node: h("pre", { tabindex: "0", class: "code" }, code), next: end + 1 };
}

/** @param {string[]} lines @param {number} at @returns {Block | null} */
function heading(lines, at) {
  const found = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$/.exec(lines[at] ?? "");
  if (!found) return null;
  const level = (found[1] ?? "#").length; // not a heading element: the outline of the page is not the model's
  return { node: h("p", { class: `md-heading level-${level}` }, inline(found[2] ?? "", 0)), next: at + 1 };
}

/** @param {string[]} lines @param {number} at @returns {Block | null} */
function rule(lines, at) {
  return /^\s{0,3}([-*_])\s*(\1\s*){2,}$/.test((lines[at] ?? "").slice(0, 200)) ? { node: h("hr"), next: at + 1 } : null;
}

/** @param {string[]} lines @param {number} at @param {number} depth @returns {Block | null} */
function quote(lines, at, depth) {
  if (!/^\s{0,3}>/.test(lines[at] ?? "")) return null;
  let end = at;
  while (end < lines.length && /^\s{0,3}>/.test(lines[end] ?? "")) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(/^\s{0,3}> ?/, ""));
  return { node: h("blockquote", null, blocks(inner, depth + 1)), next: end };
}

/** @param {string[]} lines @param {number} at @returns {Block | null} */
function table(lines, at) {
  const head = lines[at] ?? "";
  const under = lines[at + 1] ?? "";
  if (!head.includes("|") || under.length > 2000 || !/^\s*\|?[\s:|-]*-[\s:|-]*$/.test(under) || !under.includes("|")) return null;
  const names = cells(head);
  let end = at + 2;
  let size = names.length;
  while (end < lines.length && (lines[end] ?? "").includes("|") && size < TABLE_CELLS_MAX) {
    size += names.length;
    end += 1;
  }
  const rows = lines.slice(at + 2, end).map((line) => {
    const found = cells(line);
    return h("tr", null, names.map((_, place) => h("td", null, inline(found[place] ?? "", 0))));
  });
  const made = h("table", null, h("thead", null, h("tr", null, names.map((name) => h("th", { scope: "col" }, inline(name, 0))))), h("tbody", null, rows));
  return { node: h("div", { class: "scroller", tabindex: "0" }, made), next: end };
}

/** @param {string} line */
function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").slice(0, 50).map((cell) => cell.trim());
}

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;

/** @param {string[]} lines @param {number} at @param {number} depth @returns {Block | null} */
function list(lines, at, depth) {
  const first = ITEM.exec(lines[at] ?? "");
  if (!first) return null;
  const indent = (first[1] ?? "").length;
  const ordered = /\d/.test(first[2] ?? "");
  /** @type {string[][]} */
  const items = [];
  let end = at;
  while (end < lines.length) {
    const line = lines[end] ?? "";
    const found = ITEM.exec(line);
    const deep = line.length - line.trimStart().length;
    if (found && (found[1] ?? "").length <= indent + 1 && /\d/.test(found[2] ?? "") === ordered) items.push([found[3] ?? ""]);
    else if (found && (found[1] ?? "").length <= indent + 1) break;
    else if (line.trim() === "" && ITEM.test(lines[end + 1] ?? "") && (lines[end + 1] ?? "").search(/\S/) >= indent) items[items.length - 1]?.push("");
    else if (deep > indent && line.trim()) items[items.length - 1]?.push(line.slice(Math.min(deep, indent + 2)));
    else break;
    end += 1;
  }
  const made = items.map((inner) => {
    const rest = blocks(inner.slice(1), depth + 1);
    return h("li", null, inline(inner[0] ?? "", 0), rest);
  });
  const start = ordered ? Number.parseInt(first[2] ?? "1", 10) : 1;
  return { node: ordered ? h("ol", { start: start === 1 ? null : start }, made) : h("ul", null, made), next: end };
}

/** @param {string[]} lines @param {number} at @returns {Block} */
function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && (lines[end] ?? "").trim() && !/^\s{0,3}(#{1,6}\s|>|`{3}|~{3})/.test(lines[end] ?? "") && !ITEM.test(lines[end] ?? "")) end += 1;
  return { node: h("p", null, inline(lines.slice(at, end).join("\n"), 0)), next: end };
}

/** @param {string} text @param {number} depth @returns {(Node | string)[]} */
function inline(text, depth) {
  if (depth > DEPTH_MAX) return [text];
  /** @type {(Node | string)[]} */
  const made = [];
  let last = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > last) made.push(text.slice(last, found.index));
    made.push(inlineNode(found, depth));
    last = found.index + found[0].length;
  }
  if (last < text.length) made.push(text.slice(last));
  return made;
}

/** @param {RegExpMatchArray} found @param {number} depth @returns {Node | string} */
function inlineNode(found, depth) {
  const [whole, tick, code, alt, image, label, target, bold, bold2, italic, italic2, struck, escaped] = found;
  if (tick !== undefined) return h("code", null, (code ?? "").trim() || (code ?? ""));
  if (image !== undefined) return picture(alt ?? "", image);
  if (target !== undefined) return anchor(target, inline(label ?? "", depth + 1));
  if (bold ?? bold2) return h("strong", null, inline(bold ?? bold2 ?? "", depth + 1));
  if (italic ?? italic2) return h("em", null, inline(italic ?? italic2 ?? "", depth + 1));
  if (struck !== undefined) return h("del", null, inline(struck, depth + 1));
  if (escaped !== undefined) return escaped;
  return anchor(whole, [whole]);
}

/** @param {string} target @param {(Node | string)[]} label */
function anchor(target, label) {
  if (!/^(https?:\/\/|mailto:)/i.test(target) || !isSafeAddress(target)) return h("span", null, label, ` (${target})`);
  return h("a", { href: target, target: "_blank", rel: "noopener noreferrer nofollow", referrerpolicy: "no-referrer", title: target }, label);
}

/** A picture inside the text is shown; one from elsewhere is a link, so nothing is fetched. @param {string} alt @param {string} target */
function picture(alt, target) {
  if (/^data:image\/(png|jpeg|gif|webp);base64,/i.test(target)) return h("img", { src: target, alt, class: "md-image" });
  return anchor(target, [`[image: ${alt || target.slice(0, 80)}]`]);
}
