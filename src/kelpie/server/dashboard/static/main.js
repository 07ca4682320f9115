// The shell: navigation, the screen of the current address, the connection banner, and signing in.

import { get, request, session } from "./core/api.js";
import { connection } from "./core/connection.js";
import { h, replace } from "./core/dom.js";
import { duration } from "./core/format.js";
import { failure } from "./core/notice.js";
import { current, go, link } from "./core/router.js";
import { Screen } from "./core/screen.js";
import { help, listen, shortcut } from "./core/shortcuts.js";
import { signIn } from "./core/sign_in.js";
import { SCREENS } from "./screens/registry.js";

/** @typedef {{version: string, login_required: boolean, signed_in: boolean, operator?: boolean, scopes?: string[]}} Session */

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const main = h("main", { id: "main", tabindex: "-1" });
const banner = h("div", { class: "banner", role: "status", "aria-live": "polite", hidden: true });
const links = new Map();
/** @type {Screen | null} */
let screen = null;
let opened = "";
let wanted = 0;

/** Opens the screen of the current address. */
async function open() {
  const route = current();
  const entry = SCREENS.find((each) => each.name === route.path[0]);
  if (!entry) {
    location.replace(link([SCREENS[0]?.name ?? "agents"]));
    return;
  }
  if (screen && opened === entry.name && screen.isConnected) {
    if (screen.moved(route)) {
      screen.route = route;
      return;
    }
  }
  const mine = (wanted += 1);
  let made;
  try {
    made = new (await import(`./screens/${entry.name}.js`)).default();
  } catch (error) {
    if (mine !== wanted) return;
    const gone = new Error("This part of the dashboard could not be loaded. The server may have been updated or stopped.");
    replace(main, failure(error instanceof TypeError ? gone : error, () => location.reload()));
    return;
  }
  if (mine !== wanted) return;
  made.route = route;
  screen = made;
  opened = entry.name;
  made.windowTitle(entry.title);
  replace(main, made);
  for (const [name, node] of links) {
    if (name === entry.name) node.setAttribute("aria-current", "page");
    else node.removeAttribute("aria-current");
  }
  document.body.classList.remove("menu-open");
}

/** @param {Session} who */
function shell(who) {
  const toggle = h("button", { type: "button", class: "quiet menu", "aria-expanded": "false", "aria-controls": "nav", on: { click: () => {
    const isOpen = document.body.classList.toggle("menu-open");
    toggle.setAttribute("aria-expanded", String(isOpen));
  } } }, "Menu");
  const entries = SCREENS.filter((each) => !each.hidden).map((each) => {
    const node = h("a", { href: link([each.name]), title: each.keys ? `Keys: ${each.keys}` : null }, each.title);
    links.set(each.name, node);
    if (each.keys) shortcut(each.keys, `Go to ${each.title}`, () => go([each.name]));
    return h("li", null, node);
  });
  const nav = h("nav", { id: "nav", "aria-label": "Screens" }, h("ul", null, entries), h("div", { class: "nav-foot" }, themeSwitch(), h("button", { type: "button", class: "quiet", on: { click: help } }, "Keyboard ", h("kbd", null, "?")), h("a", { href: "docs" }, "API documentation"), who.login_required && h("button", { type: "button", class: "quiet", on: { click: signOut } }, "Sign out"), h("small", { class: "hint" }, `Kelpie ${who.version}`)));
  const header = h("header", { class: "top" }, h("a", { class: "brand", href: link([SCREENS[0]?.name ?? "agents"]) }, "Kelpie"), toggle);
  replace(app, header, nav, h("div", { class: "content" }, banner, main));
}

function themeSwitch() {
  const root = document.documentElement;
  const options = [["system", "System"], ["light", "Light"], ["dark", "Dark"]].map(([value, label]) => h("option", { value, selected: (root.dataset.theme ?? "system") === value }, label));
  const choose = h("select", { id: "theme", on: { change: () => document.dispatchEvent(new CustomEvent("kelpie-theme", { detail: choose.value })) } }, options);
  return h("div", { class: "field theme" }, h("label", { for: "theme" }, "Colors"), choose);
}

async function signOut() {
  await request("DELETE", "session");
  location.reload();
}

function showConnection() {
  banner.hidden = connection.online;
  if (connection.online) return;
  const wait = connection.waitMs > 1000 ? `Next attempt within ${duration(connection.waitMs)}.` : "Trying again now.";
  replace(banner, h("strong", null, "The server does not answer. "), `${wait} What is shown may be old. `, h("button", { type: "button", on: { click: () => void connection.ask() } }, "Try now"));
}

async function start() {
  /** @type {Session} */
  let who;
  try {
    who = await get("session");
  } catch (error) {
    replace(app, h("main", { id: "main", class: "alone" }, h("h1", null, "Kelpie"), failure(error, () => void start())));
    connection.addEventListener("back", () => void start(), { once: true });
    return;
  }
  if (!who.signed_in) {
    signIn(app, () => void start());
    return;
  }
  shell(who);
  await open();
}

connection.addEventListener("change", showConnection);
session.addEventListener("ended", () => {
  if (!document.querySelector(".sign-in")) signIn(app, () => void start());
});
window.addEventListener("hashchange", () => {
  if (location.hash !== "#main" && main.isConnected) void open();
});
document.getElementById("skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
shortcut("/", "Search on this screen", () => {
  const box = main.querySelector("input[type=search]");
  if (box instanceof HTMLElement) box.focus();
});
listen();
void start();
