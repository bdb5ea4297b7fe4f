// Compiled, never run: the types of clients/js by themselves.
import { ActionKeys, newKey, problem, quoted, semelFetch, tried, type KeyStorage, type Problem, type Tried } from "../../clients/js/index.js";

const storage: KeyStorage = sessionStorage;
const keys = new ActionKeys({ storage });
const key: string = quoted(newKey()) + keys.keep("pay", 17);
const call: typeof fetch = semelFetch({ keys, tries: 3, fetch });

export async function pay(): Promise<[Problem | null, Tried | undefined, string]> {
  const answer = await call(new URL("http://127.0.0.1"), { method: "POST" });
  await semelFetch()("/pay", { method: "POST", action: "pay", actionId: "17" });
  return [await problem(answer), tried(answer), key];
}

// @ts-expect-error: a number is no key
quoted(17);
// @ts-expect-error: no such option
semelFetch({ retries: 3 });
