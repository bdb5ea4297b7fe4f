// The shop of tests/trpc_shop.py through the real @trpc/client: SEMEL_SHOP names URL, link and transformer.
// Prints one JSON line: what each call of the scene got.
import { load } from "./packages.mjs";
import { safeRetryLink, semelHeaders, semelLink } from "../../clients/js/index.js";

const { url, link, transformer, scene, retry } = JSON.parse(process.env.SEMEL_SHOP);
const trpc = load("@trpc/client");
const superjson = transformer ? load("superjson").default ?? load("superjson") : undefined;
const version = process.env.SEMEL_TRPC;

const options = { url, headers: (told) => ({ "x-user": "alice", ...semelHeaders(told) }) };
if (superjson && version === "11") options.transformer = superjson;
const links = {
  single: trpc.httpLink,
  batch: trpc.httpBatchLink,
  stream: trpc.httpBatchStreamLink ?? trpc.unstable_httpBatchStreamLink,
};

/** As version 11's retryLink: again after a drawn pause, whatever batch it is in by then. */
function jitter() {
  return () => ({ op, next }) => {
    const { observable } = load("@trpc/server/observable");
    return observable((observer) => {
      let left = 8;
      let subscription;
      const attempt = () => {
        subscription = next(op).subscribe({
          next: (value) => observer.next(value),
          complete: () => observer.complete(),
          error(error) {
            left -= 1;
            if (left && (!error.data || error.data.retryable)) setTimeout(attempt, Math.random() * 60);
            else observer.error(error);
          },
        });
      };
      attempt();
      return () => subscription?.unsubscribe();
    });
  };
}

const retrying =
  retry === "safe"
    ? safeRetryLink({ firstMs: 20 })
    : trpc.retryLink
      ? trpc.retryLink({
          retry: ({ error, attempts }) => attempts < 8 && (!error.data || error.data.retryable),
          retryDelayMs: () => Math.random() * 60,
        })
      : jitter();

const create = trpc.createTRPCClient ?? trpc.createTRPCProxyClient;
const client = (trpc.createTRPCProxyClient ?? create)({
  links: [semelLink(), retrying, links[link](options)],
  ...(superjson && version === "10" ? { transformer: superjson } : {}),
});

const calls = scene.map(([path, input]) => {
  let at = client;
  for (const name of path.split(".")) at = at[name];
  return path === "paid" ? at.query(input) : at.mutate(input);
});
const told = await Promise.allSettled(calls);
console.log(
  JSON.stringify(
    told.map((one) =>
      one.status === "fulfilled"
        ? { ok: one.value === undefined ? "<undefined>" : one.value }
        : { error: one.reason.message, data: one.reason.data, shape: one.reason.shape },
    ),
  ),
);
process.exit(0);
