// Keys: what an action is called on the wire, from its first try to the last after a reload.
//
// A key belongs to a name ("pay") and an id of the caller (the order). It is in the storage before it
// is sent, and stays there until the caller says that the action is done; no answer forgets it.

const PREFIX = "semel:";
const KEY_CHARS_MAX = 255;
const PRINTABLE = /^[\x20-\x7e]+$/;

/** A key that was never used. */
export function newKey() {
  // randomUUID is missing on pages without TLS.
  if (globalThis.crypto.randomUUID) return globalThis.crypto.randomUUID();
  const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * A key as it stands in a header: a structured-field string (RFC 9651, 4.1.6).
 * Throws a TypeError for what is not 1 to 255 printable ASCII characters.
 */
export function quoted(key) {
  if (typeof key !== "string" || key.length > KEY_CHARS_MAX || !PRINTABLE.test(key)) {
    throw new TypeError(`E-IDEMPOTENT-006: a key has 1 to ${KEY_CHARS_MAX} printable ASCII characters`);
  }
  return `"${key.replace(/["\\]/g, "\\$&")}"`;
}

/** The keys of open actions, in a storage that has getItem, setItem and removeItem. */
export class ActionKeys {
  #storage;

  /** Without a storage: localStorage, else sessionStorage, else the memory of this program. */
  constructor(options = {}) {
    this.#storage = options.storage ?? usable("localStorage") ?? usable("sessionStorage") ?? memory();
  }

  /**
   * The key of an action; made and kept first, where it has none.
   * Throws what the storage throws: a key that is not kept must not be sent.
   */
  keep(name, actionId) {
    const entry = named(name, actionId);
    let key = this.#storage.getItem(entry);
    if (key === null || key === undefined) {
      key = newKey();
      this.#storage.setItem(entry, key);
    }
    return key;
  }

  /** The action's answer is safe with the caller: forget its key. The same id is another action now. */
  done(name, actionId) {
    this.#storage.removeItem(named(name, actionId));
  }
}

function named(name, actionId) {
  return PREFIX + JSON.stringify([String(name), String(actionId)]);
}

/** A storage of the browser that can be written; a page may forbid even to look at it. */
function usable(name) {
  try {
    const storage = globalThis[name];
    storage.setItem(PREFIX, "");
    storage.removeItem(PREFIX);
    return storage;
  } catch {
    return undefined;
  }
}

function memory() {
  const kept = new Map();
  return {
    getItem: (entry) => kept.get(entry) ?? null,
    setItem: (entry, key) => void kept.set(entry, key),
    removeItem: (entry) => void kept.delete(entry),
  };
}
