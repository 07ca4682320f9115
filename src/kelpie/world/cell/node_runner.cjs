// Runs JavaScript in a cell: a function with arguments, or a script. Source and arguments come as JSON and stay data;
// the result of a function goes back as JSON, and what is not JSON as its text. It waits for its one order on the
// descriptor that is its argument, as python_runner.py does, and uses what Node.js brings along alone.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");
const { createRequire } = require("node:module");
const { pathToFileURL } = require("node:url");

const control = Number(process.argv[2]);
const scratch = process.cwd();

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

// A module when it says so, else a script whose functions are global.
async function load(source) {
  const isModule = /^\s*(import\s[^(]|import\{|export\s)/m.test(source);
  const file = path.join(scratch, isModule ? "tool.mjs" : "tool.js");
  if (isModule) {
    fs.writeFileSync(file, source);
    return import(pathToFileURL(file).href);
  }
  globalThis.require = createRequire(file);
  globalThis.module = { exports: {} };
  globalThis.exports = globalThis.module.exports;
  vm.runInThisContext(source, { filename: file, importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER });
  return globalThis.module.exports;
}

async function main() {
  const header = readFrame();
  const request = readFrame();
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, header.env);
  const name = request.function;
  if (name === null || name === undefined) {
    await load(request.source);
    return;
  }
  let answer;
  try {
    const found = await load(request.source);
    const called = found[name] ?? (typeof found.default === "function" ? found.default : globalThis[name]);
    if (typeof called !== "function") throw new ReferenceError(`there is no function ${name} in the source`);
    const given = request.positional ? request.positional : [request.arguments ?? {}];
    answer = { ok: true, value: asJson(await called(...given)) };
  } catch (error) {
    const told = error instanceof Error ? `${error.name}: ${error.message}` : `Error: ${String(error)}`;
    answer = { ok: false, error: told, traceback: error instanceof Error ? String(error.stack) : "" };
  }
  reply(answer);
}

main();
