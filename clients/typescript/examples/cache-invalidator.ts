/**
 * Drops cached users whose row changed. Run it beside the cache.
 *
 *     node cache-invalidator.js 127.0.0.1:7490
 */

import { type Handler, Subscriber, type Update, type Value } from "../src/index.js";

/** Forgetting twice does no harm, so at-least-once delivery needs no more care than this. */
class CacheInvalidator implements Handler {
  constructor(private readonly cache: Map<Value, unknown>) {}

  onUpdate(update: Update): void {
    if (update.table !== "users") return;
    const keys: Value[] = [...update.key, ...(update.oldKey ?? [])];
    if (keys.length) for (const id of keys) this.cache.delete(id);
    else this.cache.clear(); // the whole table: TRUNCATE
    console.log(`${update.op} ${keys.map(String).join(" ")}: ${this.cache.size} users are cached`);
  }
}

const stop = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stop.abort());

const cache = new Map<Value, unknown>([[7n, { name: "Ada" }]]);
const subscriber = new Subscriber({
  application: "cache",
  dial: process.argv.slice(2),
  handler: new CacheInvalidator(cache),
  signal: stop.signal,
  stateOnly: true,
});
await subscriber.run();
