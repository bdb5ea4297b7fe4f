// Compiled, never run: the types of clients/js fit @trpc/client 11.
import { createTRPCClient, httpBatchLink, httpBatchStreamLink, httpLink, loggerLink, retryLink, splitLink } from "@trpc/client";
import { initTRPC } from "@trpc/server";
import { ActionKeys, safeRetryLink, semelFetch, semelHeaders, semelKey, semelLink } from "../../../clients/js/index.js";

const t = initTRPC.create();
const router = t.router({ pay: t.procedure.mutation(() => ({ receipt: 1 })) });
const url = "http://127.0.0.1";

const client = createTRPCClient<typeof router>({
  links: [
    semelLink({ keys: new ActionKeys({ storage: localStorage }) }),
    loggerLink(),
    retryLink({ retry: ({ op }) => semelKey(op) !== undefined }),
    safeRetryLink({ tries: 3 }),
    splitLink({
      condition: (op) => op.path === "pay",
      true: httpLink({ url, headers: semelHeaders, fetch: semelFetch() }),
      false: [httpBatchStreamLink({ url, headers: semelHeaders })],
    }),
  ],
});
createTRPCClient<typeof router>({
  links: [httpBatchLink({ url, headers: (request) => ({ ...semelHeaders(request), authorization: "x" }) })],
});

export const receipt: Promise<{ receipt: number }> = client.pay.mutate(undefined, { context: { actionId: 17 } });
