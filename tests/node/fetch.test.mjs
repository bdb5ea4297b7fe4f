// The fetch of clients/js sends what can be sent again, under one key, and nothing else.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { ActionKeys, newKey, problem, quoted, semelFetch, tried } from "../../clients/js/index.js";
import { patience, retryAfterMs } from "../../clients/js/patience.js";

const HASTE = { firstMs: 2, longestMs: 2 };
const DATE = "Mon, 30 Nov 2026 10:44:30 GMT";

const refused = (status, code, retryable) => ({
  status,
  headers: { "content-type": "application/problem+json" },
  body: JSON.stringify({ status, code, retryable }),
});

/** A server that does the next of `acts` at each request: "drop", "hold", or an answer. */
async function serving(work, ...acts) {
  const got = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    got.push({ method: request.method, url: request.url, key: request.headers["idempotency-key"], body: Buffer.concat(chunks).toString(), type: request.headers["content-type"] });
    const act = acts.shift() ?? { status: 200 };
    server.emit("act", act);
    if (act === "drop") request.socket.destroy();
    else if (act !== "hold") response.writeHead(act.status, act.headers).end(act.body ?? "{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    await work(`http://127.0.0.1:${server.address().port}/pay`, got, server);
  } finally {
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  }
}

const PASSING = ["drop", refused(409, "E-IDEMPOTENT-003", true), refused(409, "E-LEASE-001", true), { status: 429 }, { status: 502 }, { status: 503 }, { status: 504 }];
for (const act of PASSING) {
  test(`a POST is sent again with the same key and body after ${JSON.stringify(act)}`, () =>
    serving(
      async (url, got) => {
        const answer = await semelFetch(HASTE)(url, { method: "POST", body: "5" });
        assert.equal(answer.status, 200);
        assert.deepEqual(got, [got[0], got[0], got[0]]);
        assert.match(got[0].key, /^"[0-9a-f-]{36}"$/);
        assert.deepEqual(tried(answer), { tries: 3, key: got[0].key, replayed: true });
      },
      act,
      act,
      { status: 200, headers: { "idempotent-replayed": "true" } },
    ));
}

const FINAL = [refused(422, "E-IDEMPOTENT-002", false), refused(409, "E-IDEMPOTENT-004", false), refused(409, "E-IDEMPOTENT-005", false), refused(503, "E-RUN-002", false), { status: 500 }, { status: 409 }];
for (const act of FINAL) {
  test(`an answer that stays is returned: ${JSON.stringify(act)}`, () =>
    serving(async (url, got) => {
      const answer = await semelFetch(HASTE)(url, { method: "PATCH", body: "5" });
      assert.equal(answer.status, act.status);
      assert.equal(got.length, 1);
      assert.equal((await problem(answer))?.code, JSON.parse(act.body ?? "{}").code);
      assert.equal(await answer.text(), act.body ?? "{}");
    }, act));
}

test("what carries no key is sent once, but GET and HEAD", () =>
  serving(
    async (url, got) => {
      const calling = semelFetch(HASTE);
      await assert.rejects(calling(url, { method: "DELETE" }));
      assert.equal((await calling(url, { method: "PUT", body: "1" })).status, 503);
      assert.equal((await calling(url)).status, 200);
      assert.deepEqual(got.map((one) => [one.method, one.key]), [["DELETE", undefined], ["PUT", undefined], ["GET", undefined], ["GET", undefined]]);
    },
    "drop",
    { status: 503 },
    "drop",
  ));

test("a key of the caller is left as it is, and two calls have two keys", () =>
  serving(async (url, got) => {
    const calling = semelFetch(HASTE);
    await calling(url, { method: "POST", headers: { "Idempotency-Key": "bare" } });
    await calling(new Request(url, { method: "POST" }));
    await calling(new URL(url), { method: "POST" });
    assert.equal(got[0].key, "bare");
    assert.notEqual(got[1].key, got[2].key);
  }));

test("an action has one key until it is done, and none that could not be kept is sent", () =>
  serving(async (url, got) => {
    const keys = new ActionKeys();
    const pay = { method: "POST", action: "pay", actionId: 17 };
    await semelFetch({ keys })(url, pay);
    await semelFetch({ keys })(url, pay);
    await semelFetch({ keys })(url, { ...pay, action: undefined });
    keys.done("pay", "17");
    await semelFetch({ keys })(url, pay);
    assert.equal(got[0].key, got[1].key);
    assert.equal(new Set(got.map((one) => one.key)).size, 3);
    const full = { getItem: () => null, setItem: () => assert.fail("full"), removeItem: () => {} };
    await assert.rejects(semelFetch({ storage: full })(url, pay), /full/);
    assert.equal(got.length, 4);
  }));

test("a form and a stream are the same bytes each time", () =>
  serving(
    async (url, got) => {
      const form = new FormData();
      form.append("bill", new Blob(["500"]), "bill.txt");
      await semelFetch(HASTE)(url, { method: "POST", body: form });
      assert.deepEqual(got[0], got[1]);
      const body = new Blob(["one", "two"]).stream();
      await semelFetch(HASTE)(url, { method: "POST", body, duplex: "half" });
      assert.deepEqual([got[2].body, got[3].body], ["onetwo", "onetwo"]);
    },
    "drop",
    { status: 200 },
    "drop",
  ));

test("after the last try the error is fetch's own", () =>
  serving(async (url, got) => {
    await assert.rejects(semelFetch({ ...HASTE, tries: 3 })(url, { method: "POST" }), (error) => tried(error).tries === 3 && tried(error).key === got[0].key);
    assert.equal(got.length, 3);
  }, "drop", "drop", "drop"));

test("a pause that would pass the deadline is not begun", () =>
  serving(async (url, got) => {
    const answer = await semelFetch(HASTE)(url, { method: "POST" });
    assert.deepEqual([answer.status, got.length], [503, 1]);
  }, { status: 503, headers: { "retry-after": "3600" } }));

test("the deadline ends a try that is not answered", () =>
  serving(async (url) => {
    await assert.rejects(semelFetch({ deadlineMs: 100 })(url, { method: "POST" }), { name: "TimeoutError" });
  }, "hold"));

test("the caller may end it, in a try and in a pause", () =>
  serving(
    async (url, got, server) => {
      for (const patient of [HASTE, { firstMs: 30_000, longestMs: 30_000 }]) {
        const ending = new AbortController();
        server.once("act", () => setImmediate(() => ending.abort()));
        await assert.rejects(semelFetch(patient)(url, { method: "POST", signal: ending.signal }), { name: "AbortError" });
      }
      await assert.rejects(semelFetch()(url, { method: "POST", signal: AbortSignal.abort() }), { name: "AbortError" });
      assert.equal(got.length, 2);
    },
    "hold",
    { status: 503 },
  ));

test("a key is quoted as a structured field, or refused", () => {
  assert.equal(quoted('a"\\b'), '"a\\"\\\\b"');
  assert.equal(quoted(newKey()).length, 38);
  for (const wrong of ["", "k".repeat(256), "schlüssel", "a\n", undefined]) assert.throws(() => quoted(wrong), /E-IDEMPOTENT-006/);
});

test("Retry-After is read in both forms", () => {
  const asked = (value, date) => retryAfterMs(new Headers({ "retry-after": value, ...(date && { date }) }));
  assert.equal(asked("120"), 120_000);
  assert.equal(asked("Mon, 30 Nov 2026 10:45:30 GMT", DATE), 60_000);
  assert.equal(asked("Mon, 30 Nov 2026 10:40:30 GMT", DATE), 0);
  assert.equal(asked("Thu, 01 Jan 1970 00:00:00 GMT"), 0);
  for (const wrong of ["soon", "-1", "1.5", ""]) assert.equal(asked(wrong, DATE), undefined);
  assert.equal(retryAfterMs(undefined), undefined);
});

test("what nobody could follow is refused when it is said", () => {
  for (const wrong of [{ tries: 0 }, { firstMs: -1 }, { longestMs: NaN }, { deadlineMs: 2 ** 31 }]) {
    assert.throws(() => semelFetch(wrong), RangeError);
    assert.throws(() => patience(wrong), RangeError);
  }
});

test("a storage of the browser is used where it can be written", () => {
  const entries = new Map();
  globalThis.localStorage = { getItem: () => null, setItem: () => assert.fail("forbidden") };
  globalThis.sessionStorage = { getItem: (k) => entries.get(k) ?? null, setItem: (k, v) => entries.set(k, v), removeItem: (k) => entries.delete(k) };
  try {
    const key = new ActionKeys().keep("pay", 17);
    assert.deepEqual([...entries], [['semel:["pay","17"]', key]]);
    assert.equal(new ActionKeys().keep("pay", "17"), key);
  } finally {
    delete globalThis.localStorage;
    delete globalThis.sessionStorage;
  }
});
