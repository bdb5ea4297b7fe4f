// fetch, whose POSTs and PATCHes carry a key and are sent again under it.
//
// Sent again is only what cannot happen twice by it: GET, HEAD, and what carries a key.

import { ActionKeys, newKey, quoted } from "./keys.js";
import { Course, patience } from "./patience.js";
import { mayPass, problem } from "./problem.js";

const HEADER = "idempotency-key";
/** Whatever has one of these has its key; the last is that of tRPC's batches. */
const CARRIERS = [HEADER, "idempotency_key", "idempotency-keys"];
const KEYED = ["POST", "PATCH"];
const SAFE = ["GET", "HEAD"];

const TRIED = new WeakMap();

/** What it took to get this answer, or to give up with this error: {tries, key, replayed}. */
export function tried(what) {
  return TRIED.get(what);
}

/**
 * A function that is called as fetch is.
 *
 * Beside fetch's own, `init` may have `actionId` (and `action`, its name; method and path else): the
 * key is then kept over calls and reloads, until `keys.done(name, actionId)`.
 */
export function semelFetch(options = {}) {
  patience(options);
  const keys = options.keys ?? new ActionKeys(options);
  return async function fetch(input, init = {}) {
    const { action, actionId, ...own } = init;
    const request = new Request(input, own);
    if (KEYED.includes(request.method) && !carried(request)) {
      const name = action ?? `${request.method} ${new URL(request.url).pathname}`;
      request.headers.set(HEADER, quoted(actionId === undefined ? newKey() : keys.keep(name, actionId)));
    }
    return send(request, new Course(options), options.fetch ?? globalThis.fetch);
  };
}

async function send(request, course, sendOnce) {
  const mayRepeat = carried(request) !== null || SAFE.includes(request.method);
  const ending = new AbortController();
  request.signal.addEventListener("abort", () => ending.abort(request.signal.reason), { once: true });
  if (request.signal.aborted) ending.abort(request.signal.reason);
  const late = new DOMException("no answer within the deadline", "TimeoutError");
  const timer = setTimeout(() => ending.abort(late), course.leftMs);
  try {
    for (;;) {
      course.tries += 1;
      let pause;
      try {
        const sent = mayRepeat ? request.clone() : request;
        const response = await sendOnce(sent, { signal: ending.signal });
        if (mayRepeat && mayPass(response.status, await problem(response))) {
          pause = course.pauseMs(response.headers);
        }
        if (pause === undefined) return noted(response, request, course);
        await response.body?.cancel();
      } catch (error) {
        if (mayRepeat && !ending.signal.aborted) pause = course.pauseMs();
        if (pause === undefined) throw noted(error, request, course);
      }
      await waited(pause, ending.signal);
    }
  } finally {
    clearTimeout(timer);
  }
}

function carried(request) {
  for (const name of CARRIERS) {
    const key = request.headers.get(name);
    if (key !== null) return key;
  }
  return null;
}

function noted(what, request, course) {
  const replayed = what.headers?.get("idempotent-replayed")?.trim().toLowerCase();
  const told = { tries: course.tries, key: carried(request), replayed: replayed === "true" || replayed === "?1" };
  if (typeof what === "object" && what !== null) TRIED.set(what, told);
  return what;
}

function waited(pauseMs, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, pauseMs);
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
  });
}
