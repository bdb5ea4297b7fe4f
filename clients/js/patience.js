// Patience: how often, how long apart and until when a request is sent.
//
// Pauses double and are drawn from their whole range (full jitter), so that clients which failed
// together do not come back together. What Retry-After asks for comes first; the drawn pause is added.

const DEFAULTS = { tries: 8, firstMs: 200, longestMs: 10_000, deadlineMs: 60_000 };
/** setTimeout cannot count further, and would not wait at all. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** The course of one request: counts its tries and says how long to wait, or that it is over. */
export class Course {
  tries = 0;
  #patience;
  #until;

  constructor(options) {
    this.#patience = patience(options);
    this.#until = performance.now() + this.#patience.deadlineMs;
  }

  /** Milliseconds to the deadline. */
  get leftMs() {
    return Math.max(0, this.#until - performance.now());
  }

  /** Milliseconds to the next try; undefined where there is none. */
  pauseMs(headers) {
    const { tries, firstMs, longestMs } = this.#patience;
    if (this.tries >= tries) return undefined;
    const drawn = Math.random() * Math.min(longestMs, firstMs * 2 ** (this.tries - 1));
    const pause = (retryAfterMs(headers) ?? 0) + drawn;
    return pause < this.leftMs ? pause : undefined;
  }
}

/** The options in force. Throws a RangeError for what no client could follow. */
export function patience(options = {}) {
  const found = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS)) if (options[name] !== undefined) found[name] = options[name];
  for (const [name, value] of Object.entries(found)) {
    if (!(value > 0 && value <= TIMER_MS_MAX)) throw new RangeError(`${name} is ${value}: above 0, at most ${TIMER_MS_MAX}`);
  }
  return found;
}

/**
 * Milliseconds that a Retry-After asks for: seconds, or a date, counted from the answer's own Date,
 * since clocks differ. undefined where it is missing or unreadable. Source: RFC 9110, 10.2.3.
 */
export function retryAfterMs(headers) {
  const value = (headers?.get("retry-after") ?? "").trim();
  if (/^\d+$/.test(value)) return Number(value) * 1000;
  const then = /^[A-Z][a-z]+, /.test(value) ? Date.parse(value) : NaN;
  if (Number.isNaN(then)) return undefined;
  const date = Date.parse(headers.get("date") ?? "");
  return Math.max(0, then - (Number.isNaN(date) ? Date.now() : date));
}
