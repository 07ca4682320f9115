// The public API of the server this page came from. Addresses are relative to the page, so any path prefix works.
// Every failure is an ApiError: a sentence, and what to do about it.

import { connection } from "./connection.js";

const BASE = new URL(".", document.baseURI);
const PATIENCE_MS = 30_000;
const SILENCE_MS = 75_000; // the server pings an idle stream every 20 s unless it is set otherwise
const FRAMES_AT_ONCE = 300;
const FRAME_CHARS_MAX = 64 * 1024 * 1024;

export const session = new EventTarget(); // "ended" when the server no longer knows the session

/** @typedef {{[name: string]: string | number | boolean | null | undefined | (string | number)[]}} Query */
/** @typedef {{body?: unknown, query?: Query, signal?: AbortSignal, patienceMs?: number, headers?: Record<string, string>}} Options */

export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {{status?: number, code?: string, remedy?: string, detail?: unknown}} facts
   */
  constructor(message, { status = 0, code = "", remedy = "", detail = null } = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.remedy = remedy || remedyFor(status);
    this.detail = detail;
  }

  /** True if the server could not be reached at all. */
  get unreachable() {
    return this.status === 0;
  }
}

/** @param {string} path @param {Query} [query] */
export function address(path, query = {}) {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") url.searchParams.append(name, String(each));
    }
  }
  return url.href;
}

/**
 * The answer of the server as JSON (or null when it is empty). Raises ApiError, or an AbortError when `signal` says so.
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function request(method, path, options = {}) {
  const patience = AbortSignal.timeout(options.patienceMs ?? PATIENCE_MS);
  const response = await send(method, path, { ...options, signal: anyOf(options.signal, patience) }, options.signal);
  const text = await response.text().catch((error) => {
    throw asApiError(error, options.signal);
  });
  if (text === "") return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** @param {string} path @param {Query} [query] @param {AbortSignal} [signal] */
export const get = (path, query, signal) => request("GET", path, { query, signal });
/** @param {string} path @param {unknown} [body] @param {Options} [options] */
export const post = (path, body, options = {}) => request("POST", path, { ...options, body });
/** @param {string} path @param {unknown} [body] @param {Options} [options] */
export const patch = (path, body, options = {}) => request("PATCH", path, { ...options, body });
/** @param {string} path @param {unknown} [body] @param {Options} [options] */
export const put = (path, body, options = {}) => request("PUT", path, { ...options, body });
/** @param {string} path @param {Options} [options] */
export const remove = (path, options = {}) => request("DELETE", path, options);

/**
 * A request whose answer is a stream of server-sent events. Calls `onFrame` for each JSON frame, in order, with the id of
 * the event. Resolves with true when the stream came to its end ("[DONE]"), false when it broke off.
 * @param {string} path
 * @param {unknown} body without one, the request is a GET
 * @param {(frame: any, id: string) => void} onFrame
 * @param {AbortSignal} [signal]
 * @param {Query} [query]
 */
export async function stream(path, body, onFrame, signal, query) {
  const silence = new AbortController();
  let timer = 0;
  const heard = () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => silence.abort(), SILENCE_MS);
  };
  heard();
  try {
    const response = await send(body === undefined ? "GET" : "POST", path, { body, query, signal: anyOf(signal, silence.signal) }, signal);
    if (!response.body) return false;
    return await readFrames(response.body, onFrame, heard);
  } catch (error) {
    throw asApiError(error, signal);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Follows the stored stream of a run from the frame after `after`, across lost connections and restarts of the server.
 * No frame is given twice. Resolves with "done", or "gone" when the server keeps no stream of the run.
 * @param {string} runId
 * @param {number} after
 * @param {(frame: any) => void} onFrame
 * @param {AbortSignal} signal
 * @returns {Promise<"done" | "gone">}
 */
export async function followRun(runId, after, onFrame, signal) {
  let seen = after;
  for (;;) {
    try {
      const ended = await stream(
        `v1/runs/${runId}/stream`,
        { starting_after: seen, include_pings: true },
        (frame) => {
          if (typeof frame.seq_id === "number") {
            if (frame.seq_id <= seen && frame.message_type !== "ping") return;
            seen = Math.max(seen, frame.seq_id);
          }
          onFrame(frame);
        },
        signal,
      );
      if (ended) return "done";
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if ([400, 404, 410].includes(error.status)) return "gone";
      if (error.status !== 0 && error.status < 500 && error.status !== 429) throw error;
    }
    connection.lost();
    await connection.back(signal);
  }
}

/**
 * Sends messages as a background run and follows it to its end, across lost connections and restarts. The messages need
 * an `otid`: a request that may have arrived is sent again, and the server recognises it.
 * @param {string} path
 * @param {{[field: string]: unknown}} body
 * @param {(frame: any) => void} onFrame
 * @param {AbortSignal} signal
 * @returns {Promise<"done" | "gone">}
 */
export async function sendTurn(path, body, onFrame, signal) {
  let runId = "";
  let seen = 0;
  for (;;) {
    try {
      const ended = await stream(
        path,
        { ...body, background: true, streaming: true, stream_tokens: true, include_pings: true },
        (frame) => {
          if (typeof frame.run_id === "string") runId = frame.run_id;
          if (typeof frame.seq_id === "number") seen = Math.max(seen, frame.seq_id);
          onFrame(frame);
        },
        signal,
      );
      if (ended) return "done";
    } catch (error) {
      if (!(error instanceof ApiError) || (!error.unreachable && error.status < 500)) throw error;
      if (!error.unreachable && !runId) throw error;
    }
    if (runId) return followRun(runId, seen, onFrame, signal);
    connection.lost();
    await connection.back(signal);
  }
}

/**
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} body
 * @param {(frame: any, id: string) => void} onFrame
 * @param {() => void} heard
 */
async function readFrames(body, onFrame, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return false;
    heard();
    rest += value;
    if (rest.length > FRAME_CHARS_MAX) throw new ApiError("The server sent a frame that is too long to show.", { status: 500 });
    const frames = rest.split(/\r?\n\r?\n/);
    rest = frames.pop() ?? "";
    for (const [place, frame] of frames.entries()) {
      if (place % FRAMES_AT_ONCE === FRAMES_AT_ONCE - 1) await new Promise((resolve) => window.setTimeout(resolve)); // let people type
      let id = "";
      let data = "";
      for (const line of frame.split(/\r?\n/)) {
        if (line.startsWith("id:")) id = line.slice(3).trim();
        else if (line.startsWith("data:")) data += line.slice(5).trimStart();
      }
      if (data === "[DONE]") {
        await reader.cancel();
        return true;
      }
      if (data) onFrame(JSON.parse(data), id);
    }
  }
}

/**
 * @param {string} method
 * @param {string} path
 * @param {Options} options
 * @param {AbortSignal} [asked] the caller's own signal
 */
async function send(method, path, { body, query, signal, headers = {} }, asked) {
  /** @type {RequestInit} */
  const init = { method, signal, headers: { Accept: "application/json", ...headers }, credentials: "same-origin", cache: "no-store" };
  if (body instanceof FormData) init.body = body;
  else if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...init.headers, "Content-Type": "application/json" };
  }
  let response;
  try {
    response = await fetch(address(path, query), init);
  } catch (error) {
    throw asApiError(error, asked);
  }
  connection.reached();
  if (!response.ok) throw await refusal(response);
  return response;
}

/** @param {Response} response */
async function refusal(response) {
  if (response.status === 401) session.dispatchEvent(new Event("ended"));
  const text = await response.text().catch(() => "");
  /** @type {any} */
  let told = null;
  try {
    told = JSON.parse(text);
  } catch {
    told = null;
  }
  const wait = Number(response.headers.get("retry-after") ?? "");
  const remedy = response.status === 429 && wait > 0 ? `Try again in ${Math.ceil(wait)} s.` : "";
  return new ApiError(sentence(told) || `The server answered with the status ${response.status}.`, {
    status: response.status,
    code: typeof told?.code === "string" ? told.code : "",
    remedy,
    detail: told,
  });
}

/** @param {any} told @returns {string} */
function sentence(told) {
  for (const each of [told?.message, told?.detail, told?.error?.message, told?.error, told?.detail?.message]) {
    if (typeof each === "string" && each) return each.slice(0, 2000);
  }
  return "";
}

/** @param {unknown} error @param {AbortSignal} [asked] */
function asApiError(error, asked) {
  if (error instanceof ApiError) return error;
  if (asked?.aborted) return asked.reason instanceof Error ? asked.reason : new DOMException("Stopped.", "AbortError");
  connection.lost();
  const late = error instanceof DOMException && error.name === "TimeoutError";
  return new ApiError(late ? "The server took too long to answer." : "The server does not answer.");
}

/** @param {number} status */
function remedyFor(status) {
  if (status === 0) return "This page tries again by itself. On the server's machine, run `kelpie server status`, then `kelpie server start`.";
  if (status === 401) return "Sign in again.";
  if (status === 403) return "Sign in with a key that has the right scope, or with the server password.";
  if (status === 404) return "It may have been deleted. Go back to the list and choose again.";
  if (status === 409) return "Wait until the running work has ended, or cancel it, then try again.";
  if (status === 413) return "Send less at once, or raise the limit in the settings of the server.";
  if (status === 429) return "Wait a moment, then try again.";
  if (status >= 500) return "Run `kelpie doctor` on the server's machine; `kelpie logs` shows the cause.";
  return "Change the input as the message says, then try again.";
}

/** @param {...(AbortSignal | undefined)} signals */
function anyOf(...signals) {
  return AbortSignal.any(/** @type {AbortSignal[]} */ (signals.filter(Boolean)));
}
