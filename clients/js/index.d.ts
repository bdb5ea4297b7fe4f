/** A storage of keys: `localStorage`, `sessionStorage`, or three functions of your own. */
export interface KeyStorage {
  getItem(entry: string): string | null;
  setItem(entry: string, key: string): void;
  removeItem(entry: string): void;
}

/** The keys of open actions. */
export class ActionKeys {
  /** Without a storage: localStorage, else sessionStorage, else the memory of this program. */
  constructor(options?: { storage?: KeyStorage });
  /** The key of an action; made and kept first, where it has none. Throws what the storage throws. */
  keep(name: string, actionId: string | number): string;
  /** The action's answer is safe with the caller: forget its key. The same id is another action now. */
  done(name: string, actionId: string | number): void;
}

/** A key that was never used. */
export function newKey(): string;

/** A key as it stands in a header. Throws a TypeError for what is no key. */
export function quoted(key: string): string;

/** Where keys are kept: `keys`, to share them, or a `storage` for keys of one's own. */
export interface KeyOptions {
  keys?: ActionKeys;
  storage?: KeyStorage;
}

/** How long a client goes on. */
export interface Patience {
  /** At most so many tries, the first one included. 8. */
  tries?: number;
  /** The first pause at most; each next one twice as much. 200. */
  firstMs?: number;
  /** A pause at most, but for what Retry-After asks. 10,000. */
  longestMs?: number;
  /** For the whole action; a pause that would pass it is not begun. 60,000. */
  deadlineMs?: number;
}

/** What it took. `key` is as it stood in the header. */
export interface Tried {
  tries: number;
  key: string | null;
  replayed: boolean;
}

/** What it took to get this answer, or to give up with this error. */
export function tried(what: unknown): Tried | undefined;

/** What `fetch` takes, and which action of the user this is. */
export interface ActionInit extends RequestInit {
  /** What it is; method and path unless given. */
  action?: string;
  /** Which one. Without it, the key lives as long as the call. */
  actionId?: string | number;
}

/** `fetch`, whose POSTs and PATCHes carry a key and are sent again under it. */
export function semelFetch(
  options?: KeyOptions & Patience & { fetch?: typeof globalThis.fetch },
): (input: RequestInfo | URL, init?: ActionInit) => Promise<Response>;

/** The members of application/problem+json. */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  code?: string;
  retryable?: boolean;
  reason?: string;
  [member: string]: unknown;
}

/** What an answer refuses with; null where it is no problem. Leaves its body unread. */
export function problem(response: Response): Promise<Problem | null>;

/** What the links here know of a tRPC operation, of version 11 or 10. */
export interface KeyedOperation {
  type: "mutation" | "query" | "subscription";
  path: string;
  context: Record<string, unknown>;
}

/**
 * A link of @trpc/client 11 or 10. Their types have no common name, and none is imported: what
 * passes through a link is not looked at.
 */
export type AnyLink = (runtime: any) => (options: { op: any; next: (op: any) => any }) => any;

/** Gives every mutation its own key; heeds `actionId` and `idempotencyKey` of its context. First of all links. */
export function semelLink(options?: KeyOptions): AnyLink;

/** Sends again what cannot happen twice by it. Behind semelLink. */
export function safeRetryLink(options?: Patience): AnyLink;

/** The headers of an httpLink, httpBatchLink or httpBatchStreamLink. */
export function semelHeaders(
  request: { op: KeyedOperation; opList?: undefined } | { op?: undefined; opList: readonly KeyedOperation[] },
): Record<string, string>;

/** The key of an operation that went through semelLink; undefined for a query. */
export function semelKey(op: KeyedOperation): string | undefined;
