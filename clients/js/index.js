// What a program imports. Each file says what it is for.
export { ActionKeys, newKey, quoted } from "./keys.js";
export { semelFetch, tried } from "./fetch.js";
export { problem } from "./problem.js";
export { safeRetryLink, semelHeaders, semelKey, semelLink } from "./trpc.js";
