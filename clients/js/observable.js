// The least that tRPC asks of an observable: subscribe, which answers unsubscribe, and pipe.

/** An observable; `start` gets an observer and returns what ends it. */
export function observable(start) {
  const self = {
    subscribe(observer) {
      let torn = false;
      let teardown;
      const tear = () => {
        if (torn) return;
        torn = true;
        teardown?.();
      };
      const ending = (method) => (value) => {
        if (torn) return;
        observer[method]?.(value);
        tear();
      };
      teardown = start({
        next: (value) => void (torn || observer.next?.(value)),
        error: ending("error"),
        complete: ending("complete"),
      });
      if (torn) teardown();
      return { unsubscribe: tear };
    },
    pipe: (...operators) => operators.reduce((source, operator) => operator(source), self),
  };
  return self;
}
