// What the Node runner does with a request, inside a cell: it loads a source and calls one function of it.
//
// It runs beside foreign code and is believed by nobody; it imports nothing but Node. The request is data: arguments
// are values given to a function, never text put into code. See `sandbox/requests.py` for both forms.
//
// `node cell_node.mjs IN OUT`: the request is read from the file descriptor IN to its end, the answer goes to OUT.

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import module from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const HOOK = '__the_tool__';

export async function perform(request) {
  try {
    const value = await called(request);
    const text = typeof value === 'string' ? value : JSON.stringify(value) ?? String(value);
    return { ok: true, value: value === undefined ? null : JSON.parse(JSON.stringify(value) ?? 'null'), text };
  } catch (error) {
    process.stderr.write(`${trace(error)}\n`);
    return { ok: false, error: String(error).split('\n')[0] };
  }
}

/** The way to an error, as far as it goes through the tool. */
function trace(error) {
  const lines = String(error?.stack ?? error).split('\n');
  return lines.filter((line) => !/^ +at .*(cell_node\.mjs|node:internal)/.test(line)).join('\n');
}

async function called(request) {
  const place = fs.mkdtempSync(path.join(os.tmpdir(), 'tool-'));
  const require = module.createRequire(path.join(place, 'tool.cjs'));
  Object.assign(globalThis, { require, module: { exports: {} }, exports: {} });
  const source = request.typescript ? stripped(request.source, require) : request.source;
  const file = path.join(place, 'tool.mjs');
  if (request.check) return checked(file, source);
  // The one name that is written into the source is checked to be a name when the tool is registered, and here.
  const name = request.function;
  if (name != null && !/^[A-Za-z_$][\w$]*$/.test(name)) throw new Error(`'${name}' cannot be the name of a function`);
  fs.writeFileSync(file, name == null ? source : `${source}\n;export { ${name} as ${HOOK} };\n`);
  const loaded = await import(pathToFileURL(file).href);
  if (name == null) return undefined;
  if (typeof loaded[HOOK] !== 'function') throw new Error(`the source defines no function '${name}'`);
  const given = { ...request.arguments };
  if (request.agent_state != null) given.agent_state ??= request.agent_state;
  return await loaded[HOOK](...request.order.map((each) => given[each]));
}

/** Throws what Node has against a source that is not run. */
function checked(file, source) {
  fs.writeFileSync(file, source);
  const seen = spawnSync(process.execPath, ['--check', file], { encoding: 'utf8' });
  if (seen.status === 0) return undefined;
  const [, line] = /tool\.mjs:(\d+)/.exec(seen.stderr) ?? [];
  const [said] = /\w*Error: .*/.exec(seen.stderr) ?? ['it cannot be read'];
  throw new Error(line ? `${said} in line ${line}` : said);
}

function stripped(source, require) {
  const strip = module.stripTypeScriptTypes ?? ((code, how) => require('amaro').transformSync(code, how).code);
  try {
    return strip(source, { mode: 'strip' });
  } catch {
    try {
      return strip(source, { mode: 'transform' }); // enums and the like need more than leaving the types out
    } catch (error) {
      const [, line] = /^ *(\d+) \|.*\n *[:·] .*\^/m.exec(String(error)) ?? [];
      const said = String(error?.message ?? error).trim().split('\n')[0].replace(/^x /, '');
      throw new SyntaxError(line ? `${said} in line ${line}` : said);
    }
  }
}

const [inward, outward] = process.argv.slice(2).map(Number);
if (outward) {
  const answer = await perform(JSON.parse(fs.readFileSync(inward, 'utf8')));
  fs.writeFileSync(outward, JSON.stringify(answer));
  process.exit(0); // timers and sockets that the tool left open do not keep its result
}
