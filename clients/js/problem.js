// Problems: what an answer says about being asked again.

const BUSY = [429, 502, 503, 504];
const IN_FLIGHT = "E-IDEMPOTENT-003";

/** The members of an answer of application/problem+json; null where it is none. Leaves its body unread. */
export async function problem(response) {
  const media = (response.headers.get("content-type") ?? "").split(";")[0].trim().toLowerCase();
  if (response.ok || media !== "application/problem+json" || response.bodyUsed) return null;
  try {
    const members = await response.clone().json();
    return typeof members === "object" && !Array.isArray(members) ? members : null;
  } catch {
    return null;
  }
}

/**
 * Whether the same request may get another answer later. A mismatch (422), and a conflict that is to
 * stay (E-IDEMPOTENT-004, -005), may not.
 */
export function mayPass(status, members) {
  if (BUSY.includes(status)) return members?.retryable !== false;
  return status === 409 && (members?.retryable === true || members?.code === IN_FLIGHT);
}
