// tRPC: a key for every mutation, written where the server reads it. For @trpc/client 11 and 10.
//
// The links need nothing of tRPC: a link is a function, and what it returns has subscribe and pipe.
// A key is made once for an operation, however often a retryLink sends it and whatever batch it is in.

import { ActionKeys, newKey, quoted } from "./keys.js";
import { observable } from "./observable.js";
import { Course, patience } from "./patience.js";
import { mayPass } from "./problem.js";
import { Turns } from "./turns.js";

const KEY = Symbol.for("semel.key");

/** The key of an operation that went through semelLink; undefined for a query. */
export function semelKey(op) {
  return op.context?.[KEY];
}

/**
 * A link that gives every mutation its own key. Put it first, before every link that retries.
 *
 * The context of a call may have `actionId`: its key is then kept over calls and reloads, until
 * `keys.done(path, actionId)`; or `idempotencyKey`, which is the key itself.
 */
export function semelLink(options = {}) {
  const keys = options.keys ?? new ActionKeys(options);
  return () => {
    // Behind a link that retries, the same operation comes again: it is no other action for that.
    const given = new WeakMap();
    const turns = new Turns();
    return ({ op, next }) => {
      if (op.type !== "mutation") return next(op);
      const { actionId, idempotencyKey } = op.context;
      const before = semelKey(op) ?? given.get(op);
      const named = idempotencyKey ?? (actionId === undefined ? undefined : keys.keep(op.path, actionId));
      const key = before ?? named ?? newKey();
      given.set(op, key);
      const keyed = { ...op, context: { ...op.context, [KEY]: key } };
      return named === undefined ? next(keyed) : inTurn(turns, `${op.path} ${key}`, () => next(keyed));
    };
  };
}

/** One action at a time: a double click is answered twice, and never two calls of one batch. */
function inTurn(turns, name, call) {
  return observable((observer) => {
    let current;
    let over = false;
    const end = turns.take(name, () => {
      if (!over) current = call().subscribe(observer);
    });
    return () => {
      over = true;
      current?.unsubscribe();
      end();
    };
  });
}

/**
 * The headers of a request: `Idempotency-Key` for the operation of an httpLink, `Idempotency-Keys`
 * for the operations of a batch, where the i-th member is the key of the i-th call.
 */
export function semelHeaders({ op, opList }) {
  if (opList) {
    if (opList.every((one) => one.type !== "mutation")) return {};
    return { "Idempotency-Keys": opList.map((one) => quoted(needed(one))).join(", ") };
  }
  return op.type === "mutation" ? { "Idempotency-Key": quoted(needed(op)) } : {};
}

function needed(op) {
  const key = semelKey(op);
  if (key === undefined) throw new Error(`${op.path} has no key: put semelLink() before this link`);
  return key;
}

/**
 * A link that sends again what cannot happen twice by it: queries, and mutations with a key. It
 * stands behind semelLink, for clients without a retryLink, or where Retry-After is to be heeded.
 */
export function safeRetryLink(options = {}) {
  patience(options);
  return () =>
    ({ op, next }) =>
      observable((observer) => {
        const mayRepeat = op.type === "query" || (op.type === "mutation" && semelKey(op) !== undefined);
        const course = new Course(options);
        let current;
        let timer;
        let over = false;
        const send = () => {
          course.tries += 1;
          let failed = false;
          const subscription = next(op).subscribe({
            next: (value) => observer.next?.(value),
            complete: () => observer.complete?.(),
            error(error) {
              failed = true;
              if (over) return;
              const pause = mayRepeat && passing(error, op) ? course.pauseMs(headersOf(error)) : undefined;
              if (pause === undefined) observer.error?.(error);
              else timer = setTimeout(send, pause);
            },
          });
          // Unsubscribed while subscribing, there was nothing yet to unsubscribe from.
          if (over) subscription.unsubscribe();
          else if (!failed) current = subscription;
        };
        send();
        return () => {
          over = true;
          clearTimeout(timer);
          current?.unsubscribe();
        };
      });
}

/** Whether the same call may get another answer later. `error` is a TRPCClientError. */
function passing(error, op) {
  if (op.signal?.aborted || error?.cause?.name === "AbortError") return false;
  const told = error?.data;
  if (told) return mayPass(told.httpStatus, { retryable: told.retryable, code: told.errorCode });
  const response = error?.meta?.response;
  // No answer at all, one that broke, or one that no tRPC server gave.
  return !response || response.ok || mayPass(response.status, error.meta.responseJSON);
}

function headersOf(error) {
  return error?.meta?.response?.headers;
}
