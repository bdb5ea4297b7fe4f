// The digests again, by another hand: one line of JSON in, one line out.
// {"raw": base64} answers its digest as [v1 js, v1 strict, v2 js, v2 strict], null where refused;
// {"value": expression} the version 1 digest of a value of JavaScript.
import { createHash } from "node:crypto";
import { createInterface } from "node:readline";

const DEPTH_MAX = 200;
const SAFE = 2n ** 53n - 1n;

const sha256 = (text) => `sha256:${createHash("sha256").update(text, "utf8").digest("hex")}`;

function rebuilt(value) {
  if (Array.isArray(value)) return value.map(rebuilt);
  if (value === null || typeof value !== "object") return value;
  const object = {};
  for (const name of Object.keys(value).sort())
    Object.defineProperty(object, name, { value: rebuilt(value[name]), enumerable: true });
  return object;
}

function rfc8785(value) {
  if (Array.isArray(value)) return `[${value.map(rfc8785).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.keys(value).sort();
  return `{${members.map((name) => `${JSON.stringify(name)}:${rfc8785(value[name])}`).join(",")}}`;
}

// What a text that JSON.parse takes has in it.
function seen(text) {
  const token = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[{}[\],:]/gsu;
  const found = { depth: 0, halves: false, infinite: false, twice: false, inexact: false };
  const names = [];
  let last = "";
  for (const [part] of text.matchAll(token)) {
    if (part === "{" || part === "[") {
      names.push(new Set());
      found.depth = Math.max(found.depth, names.length);
    } else if (part === "}" || part === "]") names.pop();
    else if (part === ":") {
      const inside = names.at(-1);
      found.twice ||= inside.has(JSON.parse(last));
      inside.add(JSON.parse(last));
    } else if (part.startsWith('"')) found.halves ||= !JSON.parse(part).isWellFormed();
    else if (part !== ",") {
      found.infinite ||= !Number.isFinite(Number(part));
      if (/^-?\d+$/.test(part)) {
        const whole = BigInt(part);
        found.inexact ||= whole > SAFE || whole < -SAFE;
      }
    }
    last = part;
  }
  return found;
}

function judged(raw) {
  const refused = [null, null, null, null];
  if (raw.length === 0) return [sha256("null"), sha256("null"), sha256(""), sha256("")];
  let text, value;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(raw);
    value = JSON.parse(text);
  } catch {
    return refused;
  }
  const found = seen(text);
  if (found.depth > DEPTH_MAX || found.infinite) return refused;
  const marked = raw[0] === 0xef;
  const strict = !(marked || found.halves || found.twice || found.inexact);
  const one = sha256(JSON.stringify(rebuilt(value)));
  const canonical = rfc8785(value);
  const two = /\\ud[89a-f]/.test(canonical.replaceAll("\\\\", "")) ? null : sha256(canonical);
  return [one, strict ? one : null, two, strict ? two : null];
}

function stringified(expression) {
  const value = (0, eval)(`(${expression})`);
  const text = JSON.stringify(value, (_, item) =>
    typeof item === "bigint" ? item.toString() : item,
  );
  return sha256(text === undefined ? "null" : JSON.stringify(rebuilt(JSON.parse(text))));
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const asked = JSON.parse(line);
  const answer =
    "raw" in asked ? judged(Buffer.from(asked.raw, "base64")) : stringified(asked.value);
  process.stdout.write(`${JSON.stringify(answer)}\n`);
});
