// Runs JavaScript and TypeScript in a cell: a function with arguments, or a script. Source and arguments come as JSON
// and stay data; the result of a function goes back as JSON, and what is not JSON as its text. It waits for its one
// order on the descriptor that is its argument, as python_runner.py does; `sandbox/requests.py` has the forms.
"use strict";
const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const nodeModule = require("node:module");
const path = require("node:path");
const vm = require("node:vm");
const { pathToFileURL } = require("node:url");

const control = Number(process.argv[2]);
const scratch = process.cwd();
const hook = "__the_tool__";

function read(length) {
  const data = Buffer.alloc(length);
  for (let at = 0; at < length; ) {
    const got = fs.readSync(control, data, at, length - at, null);
    if (got === 0) process.exit(0); // nobody is there any more who would give an order
    at += got;
  }
  return data;
}

const readFrame = () => JSON.parse(read(read(4).readUInt32BE(0)).toString("utf8"));

function reply(answer) {
  const body = Buffer.from(JSON.stringify(answer), "utf8");
  const frame = Buffer.alloc(4 + body.length);
  frame.writeUInt32BE(body.length, 0);
  body.copy(frame, 4);
  for (let at = 0; at < frame.length; ) at += fs.writeSync(control, frame, at);
}

function asJson(value) {
  try {
    return value === undefined ? null : JSON.parse(JSON.stringify(value));
  } catch {
    return String(value);
  }
}

function asText(value) {
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
}

// Without its types. Newer versions of Node can do that, and for the others a package is there.
function stripped(source) {
  const require = nodeModule.createRequire(path.join(scratch, "tool.js"));
  const native = nodeModule.stripTypeScriptTypes;
  const strip = native ?? ((code, how) => require("amaro").transformSync(code, how).code);
  try {
    return strip(source, { mode: native ? "strip" : "strip-only" });
  } catch (problem) {
    if (problem?.code === "MODULE_NOT_FOUND") throw new Error("TypeScript needs Node.js 22.13 or newer on the server");
  }
  try {
    return strip(source, { mode: "transform" }); // enums and the like need more than leaving the types out
  } catch (error) {
    const shown = String(error?.snippet ?? error);
    const [, found] = /-\[(\d+):\d+\]/.exec(shown) ?? /^ *(\d+) \|/m.exec(shown) ?? [];
    const line = error?.startLine ?? found;
    const said = String(error?.message ?? error).trim().split("\n")[0].replace(/^x /, "");
    throw new SyntaxError(line ? `${said} in line ${line}` : said);
  }
}

function readable(request) {
  const require = nodeModule.createRequire(path.join(scratch, "tool.js"));
  Object.assign(globalThis, { require, module: { exports: {} }, exports: {} });
  return request.typescript ? stripped(request.source) : request.source;
}

// A module when it says so, else a script.
async function runScript(source) {
  const isModule = /^\s*(import\s[^(]|import\{|export\s)/m.test(source);
  const file = path.join(scratch, isModule ? "tool.mjs" : "tool.js");
  if (isModule) {
    fs.writeFileSync(file, source);
    return import(pathToFileURL(file).href);
  }
  return vm.runInThisContext(source, {
    filename: file,
    importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
}

// The one name that is put into the source is checked to be a name and nothing else.
async function callFunction(request) {
  const name = request.function;
  if (!/^[A-Za-z_$][\w$]*$/.test(name)) throw new Error(`'${name}' cannot be the name of a function`);
  const file = path.join(scratch, "tool.mjs");
  fs.writeFileSync(file, `${readable(request)}\n;export { ${name} as ${hook} };\n`);
  const called = (await import(pathToFileURL(file).href))[hook];
  if (typeof called !== "function") throw new ReferenceError(`there is no function ${name} in the source`);
  const given = { ...request.arguments, agent_state: request.agent_state ?? request.arguments?.agent_state };
  return await called(...(request.order ?? []).map((each) => given[each]));
}

// Throws what Node has against a source that is not run.
function check(request) {
  const file = path.join(scratch, "tool.mjs");
  fs.writeFileSync(file, readable(request));
  const seen = spawnSync(process.execPath, ["--check", file], { encoding: "utf8" });
  if (seen.status === 0) return;
  const [, line] = /tool\.mjs:(\d+)/.exec(seen.stderr) ?? [];
  const [said] = /\w*Error: .*/.exec(seen.stderr) ?? ["it cannot be read"];
  throw new SyntaxError(line ? `${said.replace(/^SyntaxError: /, "")} in line ${line}` : said);
}

// The way to an error, as far as it goes through the tool.
function trace(error) {
  const lines = String(error?.stack ?? error).split("\n");
  return `${lines.filter((line) => !/^ +at .*(node_runner\.cjs|node:internal)/.test(line)).join("\n")}\n`;
}

async function main() {
  const header = readFrame();
  const request = readFrame();
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, header.env);
  if (!request.check && (request.function === null || request.function === undefined)) {
    await runScript(readable(request));
    return;
  }
  let answer;
  try {
    const value = request.check ? check(request) : await callFunction(request);
    answer = { ok: true, text: asText(value), value: asJson(value) };
  } catch (error) {
    const told = error instanceof Error ? `${error.name}: ${error.message}` : `Error: ${String(error)}`;
    answer = { ok: false, error: told.split("\n")[0], traceback: trace(error) };
  }
  reply(answer);
}

main();
