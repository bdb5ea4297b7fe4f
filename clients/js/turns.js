// Turns: what has one name happens one after the other.

/** Who goes when. */
export class Turns {
  #last = new Map();

  /**
   * Call `go` when all that took a turn of this name before have ended: now, where there are none.
   * Returns what ends this turn; it may end before it came.
   */
  take(name, go) {
    const before = this.#last.get(name);
    let end;
    const mine = new Promise((resolve) => (end = resolve));
    const all = Promise.all([before, mine]).then(() => {
      if (this.#last.get(name) === all) this.#last.delete(name);
    });
    this.#last.set(name, all);
    if (before) before.then(go);
    else go();
    return end;
  }
}
