// The packages of the folder that tests/fix_node.py made, by name: SEMEL_NODE_PACKAGES is that folder.
import { createRequire } from "node:module";
import { join } from "node:path";

/** What the tests import: `load("@trpc/client")`. */
export const load = createRequire(join(process.env.SEMEL_NODE_PACKAGES, "package.json"));
