// Every mutation of a real @trpc/client is executed once, however its batches are regrouped.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ActionKeys, safeRetryLink, semelFetch, semelHeaders, semelLink } from "../../clients/js/index.js";
import { load } from "./packages.mjs";
import { Stub } from "./stub.mjs";

const trpc = load("@trpc/client");
const TERMINATING = {
  httpLink: trpc.httpLink,
  httpBatchLink: trpc.httpBatchLink,
  httpBatchStreamLink: trpc.httpBatchStreamLink ?? trpc.unstable_httpBatchStreamLink,
};
// Version 10's stream looks at no status; what is no stream is to it an answer that broke.
const BLIND = trpc.httpBatchStreamLink ? undefined : trpc.unstable_httpBatchStreamLink;
const HASTE = { firstMs: 10, longestMs: 10 };
const jitter = () => trpc.retryLink({ retry: ({ attempts }) => attempts < 8, retryDelayMs: () => Math.random() * 10 });
const RETRIES = { safeRetryLink: () => safeRetryLink(HASTE), ...(trpc.retryLink && { retryLink: jitter }) };
const IN_FLIGHT = { code: "CONFLICT", httpStatus: 409, errorCode: "E-IDEMPOTENT-003", retryable: true };
const UNKNOWN = { code: "CONFLICT", httpStatus: 409, errorCode: "E-IDEMPOTENT-004", retryable: false };

function client(stub, { last = trpc.httpBatchLink, links = [safeRetryLink(HASTE)], keys, ...options } = {}) {
  const end = last({ url: stub.url, headers: semelHeaders, ...options });
  return trpc.createTRPCUntypedClient({ links: [semelLink({ keys }), ...links, end] });
}

async function withStub(work) {
  const stub = await new Stub().start();
  try {
    return await work(stub);
  } finally {
    await stub.stop();
  }
}

const PLAYS = {
  "[pay, ship]": [["pay", 1], ["ship", 1]],
  "[pay(1), pay(2)]": [["pay", 1], ["pay", 2]],
  "two equal pays": [["pay", 1], ["pay", 1]],
  "a pay without an input": [["pay", undefined]],
};

for (const [link, last] of Object.entries(TERMINATING)) {
  for (const [retry, again] of Object.entries(RETRIES)) {
    for (const [play, calls] of Object.entries(PLAYS)) {
      test(`${link}, ${retry}: ${play} is executed once though answers are lost`, () =>
        withStub(async (stub) => {
          const calling = client(stub, { last, links: [again()] });
          for (let trial = 1; trial <= 8; trial += 1) {
            stub.faults = ["drop", "drop"];
            const got = await Promise.all(calls.map(([path, input]) => calling.mutation(path, input)));
            assert.deepEqual(got.map((one) => [one.path, one.input]), calls.map(([path, input]) => (input === undefined ? [path, input] : [path, input])));
            assert.equal(new Set(got.map((one) => one.receipt)).size, calls.length);
            assert.equal(stub.executed.length, trial * calls.length);
          }
        }));
    }
  }

  test(`${link}: what is in flight is asked again alone, what is done is not`, () =>
    withStub(async (stub) => {
      stub.refusals = { ship: [IN_FLIGHT, IN_FLIGHT] };
      const calling = client(stub, { last });
      const got = await Promise.all([calling.mutation("pay", 1), calling.mutation("ship", 2)]);
      assert.deepEqual(got.map((one) => one.path), ["pay", "ship"]);
      assert.equal(stub.executed.length, 2);
      const ship = stub.requests.at(-1);
      assert.deepEqual(stub.requests.slice(-2), [ship, ship]);
    }));

  test(`${link}: an answer that stays is not asked again`, () =>
    withStub(async (stub) => {
      stub.refusals = { pay: [UNKNOWN] };
      await assert.rejects(client(stub, { last }).mutation("pay", 1), (error) => error.data.errorCode === "E-IDEMPOTENT-004");
      assert.equal(stub.requests.length, 1);
    }));

  test(`${link}: a proxy's page is asked again, a long Retry-After and a 404 that are tRPC's are not`, () =>
    withStub(async (stub) => {
      const calling = client(stub, { last });
      stub.faults = [{ status: 503 }, { status: 429 }];
      await calling.mutation("pay", 1);
      assert.equal(stub.requests.length, 3);
      if (last === BLIND) return;
      for (const [status, code] of [[503, "SERVICE_UNAVAILABLE"], [404, "NOT_FOUND"]]) {
        const error = { message: code, code: -32603, data: { code, httpStatus: status } };
        stub.requests = [];
        stub.faults = [{ status, headers: { "retry-after": "3600" }, body: JSON.stringify({ error }) }];
        await assert.rejects(calling.mutation("pay", 1));
        assert.equal(stub.requests.length, 1);
      }
    }));

  test(`${link}: over semelFetch a request is sent again as it was, and Retry-After is heeded`, () =>
    withStub(async (stub) => {
      const calling = client(stub, { last, links: [], fetch: semelFetch(HASTE) });
      stub.faults = ["drop", { status: 503 }];
      await Promise.all([calling.mutation("pay", 1), calling.mutation("pay", 1)]);
      assert.equal(stub.executed.length, 2);
      stub.requests = [];
      stub.faults = [{ status: 503, headers: { "retry-after": "3600" } }];
      await assert.rejects(calling.mutation("pay", 1));
      assert.equal(stub.requests.length, 1);
    }));

  test(`${link}: an action has one key over reloads, until it is done`, () =>
    withStub(async (stub) => {
      const storage = new Map();
      const kept = { getItem: (k) => storage.get(k) ?? null, setItem: (k, v) => storage.set(k, v), removeItem: (k) => storage.delete(k) };
      const pay = (input = 1) => client(stub, { last, keys: new ActionKeys({ storage: kept }) }).mutation("pay", input, { context: { actionId: "order-17" } });
      assert.deepEqual(await pay(), await pay());
      assert.equal(stub.executed.length, 1);
      await assert.rejects(pay(2), (error) => error.data.code === "CONFLICT");
      new ActionKeys({ storage: kept }).done("pay", "order-17");
      assert.equal((await pay()).receipt, 2);
    }));

  test(`${link}: a double click is one action, in one batch or not`, () =>
    withStub(async (stub) => {
      const calling = client(stub, { last });
      for (const context of [{ actionId: 17 }, { idempotencyKey: "k" }]) {
        stub.faults = ["drop"];
        const clicks = [1, 2, 3].map(() => calling.mutation("pay", 1, { context }));
        const [other, ...same] = await Promise.all([calling.mutation("pay", 1), ...clicks]);
        assert.equal(new Set(same.map((one) => one.receipt)).size, 1);
        assert.notEqual(other.receipt, same[0].receipt);
      }
      assert.equal(stub.executed.length, 4);
    }));

  test(`${link}: without semelLink it says what is missing, and sends nothing`, () =>
    withStub(async (stub) => {
      const end = last({ url: stub.url, headers: semelHeaders });
      const calling = trpc.createTRPCUntypedClient({ links: [end] });
      await assert.rejects(calling.mutation("pay", 1), /put semelLink\(\) before/);
      assert.equal(stub.requests.length, 0);
    }));

  test(`${link}: queries carry no key`, () =>
    withStub(async (stub) => {
      stub.faults = ["drop"];
      const calling = client(stub, { last });
      assert.deepEqual(await Promise.all([calling.query("ask"), calling.query("ask", 1)]), ["asked", "asked"]);
      assert.equal(stub.requests.flat().length, 0);
    }));
}

test("a link that retries before semelLink changes no key", { skip: !trpc.retryLink }, () =>
  withStub(async (stub) => {
    const end = trpc.httpBatchLink({ url: stub.url, headers: semelHeaders });
    const calling = trpc.createTRPCUntypedClient({ links: [jitter(), semelLink(), semelLink(), end] });
    stub.faults = ["drop", "drop"];
    await Promise.all([calling.mutation("pay", 1), calling.mutation("pay", 1)]);
    assert.equal(stub.executed.length, 2);
  }));

test("batches of at most two, three equal pays: three executions", { skip: !trpc.retryLink }, () =>
  withStub(async (stub) => {
    stub.faults = ["drop"];
    const calling = client(stub, { maxItems: 2 });
    const got = await Promise.all([1, 1, 1].map((input) => calling.mutation("pay", input)));
    assert.equal(new Set(got.map((one) => one.receipt)).size, 3);
    assert.equal(stub.executed.length, 3);
  }));

test("a call that is given up while it waits is not sent", () =>
  withStub(async (stub) => {
    stub.faults = [{ status: 503 }];
    const ending = new AbortController();
    const calling = client(stub, { links: [safeRetryLink({ firstMs: 30_000, longestMs: 30_000 })] });
    const sent = calling.mutation("pay", 1, { signal: ending.signal });
    stub.server.once("request", (_, response) => response.once("close", () => setImmediate(() => ending.abort())));
    await assert.rejects(sent);
    assert.equal(stub.requests.length, 1);
  }));
