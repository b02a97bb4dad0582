/**
 * A loop over updates, or over batches of them, for tests/integration/test_typescript_client.py. Its arguments are the
 * publisher's address, `updates` or `batches`, and the id of the update at which it leaves the loop. Without one it
 * leaves at SIGTERM.
 */

import { batches, updates } from "../../src/index.js";

const [, , address = "", kind, last] = process.argv;
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
const logger = { debug: console.error, info: console.error, warn: console.error, error: console.error };
const options = { application: "app", id: "s1", dial: [address], signal: stop.signal, logger };

async function* singly(): AsyncGenerator<string> {
  if (kind === "updates") for await (const update of updates(options)) yield update.id;
  else for await (const batch of batches(options)) yield* batch.map(({ id }) => id);
}

for await (const id of singly()) {
  console.log(id);
  if (id === last) break;
}
console.log("left");
