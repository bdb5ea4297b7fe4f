// A tRPC server as the wire of versions 10 and 11 is captured, with a ledger in memory and faults on
// demand: what a client that regroups its batches meets. Each call needs a key of its own.
import { createServer } from "node:http";
import { once } from "node:events";

const MEMBER = /"((?:[^"\\]|\\.)*)"(?:, *|$)/gy;

export class Stub {
  executed = []; // [path, input] of each execution
  requests = []; // the keys of each request
  faults = []; // for the next requests: "drop", or {status, headers, body}; a body of HTML unless given
  refusals = {}; // path to the errors of its next calls: {code, errorCode, httpStatus, retryable}
  #ledger = new Map();

  async start() {
    this.server = createServer((request, response) => this.#serve(request, response));
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.url = `http://127.0.0.1:${this.server.address().port}`;
    return this;
  }

  async stop() {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, "close");
  }

  async #serve(request, response) {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    const url = new URL(request.url, this.url);
    const batch = url.searchParams.get("batch") === "1";
    const paths = decodeURIComponent(url.pathname.slice(1)).split(",");
    const given = request.method === "POST" ? body : (url.searchParams.get("input") ?? "");
    const inputs = batch ? JSON.parse(given) : { 0: given ? JSON.parse(given) : undefined };
    const keys = request.method === "POST" ? keysOf(request.headers) : [];
    this.requests.push(keys);
    const fault = this.faults.shift();
    if (fault?.status) return void response.writeHead(fault.status, fault.headers).end(fault.body ?? "<html>");
    if (request.method === "POST" && new Set(keys).size !== paths.length) {
      return void response.writeHead(400).end("a key for each call");
    }
    const answers = paths.map((path, index) => this.#call(path, inputs[index], keys[index]));
    if (fault === "drop") return void request.socket.destroy();
    this.#answer(request, response, batch ? answers : answers[0]);
  }

  #call(path, input, key) {
    const refusal = this.refusals[path]?.shift();
    if (refusal) return failed(path, refusal);
    if (key === undefined) return { result: { data: "asked" } };
    const told = JSON.stringify(input);
    const known = this.#ledger.get(`${key} ${path}`);
    if (known && known.told !== told) {
      return failed(path, { code: "CONFLICT", httpStatus: 409, errorCode: "E-IDEMPOTENT-002", retryable: false });
    }
    if (known) return known.answer;
    this.executed.push([path, input]);
    const answer = { result: { data: { receipt: this.executed.length, path, input } } };
    this.#ledger.set(`${key} ${path}`, { told, answer });
    return answer;
  }

  #answer(request, response, said) {
    if (request.headers["trpc-accept"] === "application/jsonl") {
      response.writeHead(200, { "content-type": "application/json" });
      const head = said.map((one, index) => [index, [[one]]]);
      return void response.end(`${JSON.stringify(Object.fromEntries(head))}\n`);
    }
    if (request.headers["trpc-batch-mode"] === "stream") {
      response.writeHead(200, { "content-type": "application/json" });
      const lines = said.map((one, index) => `"${index}":${JSON.stringify(one)}\n`);
      return void response.end(`{${lines.join(",")}}`);
    }
    const statuses = [said].flat().map((one) => one.error?.data.httpStatus ?? 200);
    const status = new Set(statuses).size === 1 ? statuses[0] : 207;
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(said));
  }
}

function keysOf(headers) {
  const line = headers["idempotency-keys"] ?? headers["idempotency-key"] ?? "";
  return Array.from(line.matchAll(MEMBER), ([, key]) => key);
}

function failed(path, { code, httpStatus, ...more }) {
  return { error: { message: code, code: -32009, data: { code, httpStatus, path, ...more } } };
}
