// semel.trpc.Router on PostgreSQL: every mutation of a real @trpc/client is executed once.
//
// SEMEL_URL is the router, by a way that loses as many answers as SEMEL_CONTROL was last told to.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ActionKeys, safeRetryLink, semelHeaders, semelLink } from "../../clients/js/index.js";
import { load } from "./packages.mjs";

const { SEMEL_URL: url, SEMEL_CONTROL: control } = process.env;
const trpc = load("@trpc/client");
const TERMINATING = {
  httpLink: trpc.httpLink,
  httpBatchLink: trpc.httpBatchLink,
  httpBatchStreamLink: trpc.httpBatchStreamLink ?? trpc.unstable_httpBatchStreamLink,
};
const jitter = () => trpc.retryLink({ retry: ({ attempts }) => attempts < 8, retryDelayMs: () => Math.random() * 20 });
const RETRIES = {
  safeRetryLink: () => safeRetryLink({ firstMs: 20, longestMs: 20 }),
  ...(trpc.retryLink && { retryLink: jitter }),
};
const PLAYS = {
  "[pay, ship]": [["pay", 1], ["ship", 1]],
  "[pay(1), pay(2)]": [["pay", 1], ["pay", 2]],
  "two equal pays": [["pay", 1], ["pay", 1]],
};

function client(last, again, keys) {
  return trpc.createTRPCUntypedClient({ links: [semelLink({ keys }), again, last({ url, headers: semelHeaders })] });
}

const lose = (answers) => fetch(`${control}/lose?${answers}`);
const rows = async () => (await fetch(`${control}/rows`)).json();

for (const [link, last] of Object.entries(TERMINATING)) {
  for (const [retry, again] of Object.entries(RETRIES)) {
    for (const [play, calls] of Object.entries(PLAYS)) {
      test(`${link}, ${retry}: ${play} is executed once though answers are lost after the commit`, async () => {
        const calling = client(last, again());
        for (let trial = 0; trial < 4; trial += 1) {
          const before = await rows();
          await lose(2);
          const got = await Promise.all(calls.map(([path, input]) => calling.mutation(path, input)));
          assert.deepEqual(got.map((one) => [one.path, one.input]), calls);
          assert.equal(new Set(got.map((one) => one.receipt)).size, calls.length);
          assert.equal((await rows()) - before, calls.length);
        }
      });
    }
  }

  test(`${link}: an action is one execution over reloads and double clicks`, async () => {
    const keys = new ActionKeys();
    const before = await rows();
    const pay = (input) => client(last, RETRIES.safeRetryLink(), keys).mutation("pay", input, { context: { actionId: link } });
    const calling = client(last, RETRIES.safeRetryLink(), keys);
    await lose(1);
    const clicks = [1, 2, 3].map(() => calling.mutation("pay", 7, { context: { actionId: link } }));
    const [first, ...same] = [...(await Promise.all(clicks)), await pay(7), await pay(7)];
    for (const one of same) assert.deepEqual(one, first);
    await assert.rejects(pay(8), (error) => error.data.code === "CONFLICT" && error.data.errorCode === "E-IDEMPOTENT-002");
    assert.equal((await rows()) - before, 1);
    keys.done("pay", link);
    assert.notEqual((await pay(7)).receipt, first.receipt);
  });
}
