// Compiled, never run: the types of clients/js fit @trpc/client 10.
import { createTRPCProxyClient, httpBatchLink, httpLink, loggerLink, splitLink, unstable_httpBatchStreamLink } from "@trpc/client";
import { initTRPC } from "@trpc/server";
import { safeRetryLink, semelFetch, semelHeaders, semelLink } from "../../../clients/js/index.js";

const t = initTRPC.create();
const router = t.router({ pay: t.procedure.mutation(() => ({ receipt: 1 })) });
const url = "http://127.0.0.1";

const client = createTRPCProxyClient<typeof router>({
  links: [
    semelLink(),
    loggerLink(),
    safeRetryLink({ tries: 3 }),
    splitLink({
      condition: (op) => op.path === "pay",
      true: httpLink({ url, headers: semelHeaders, fetch: semelFetch() }),
      false: [unstable_httpBatchStreamLink({ url, headers: semelHeaders })],
    }),
  ],
});
createTRPCProxyClient<typeof router>({
  links: [httpBatchLink({ url, headers: (request) => ({ ...semelHeaders(request), authorization: "x" }) })],
});

export const receipt: Promise<{ receipt: number }> = client.pay.mutate(undefined, { context: { actionId: 17 } });
