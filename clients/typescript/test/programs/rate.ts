/**
 * The subscriber of benchmarks/languages.py: reads every value of so many updates, and prints in how many seconds. Its
 * arguments are the publisher's address and the number of updates.
 */

import type { Update } from "../../src/index.js";
import { Subscriber } from "../../src/index.js";

const [, , address = "", count = ""] = process.argv;
const stop = new AbortController();
let left = Number(count);
let values = 0;
let first = 0;
let last = 0;

const handler = {
  onUpdates(updates: readonly Update[]): void {
    first ||= performance.now();
    for (const update of updates) {
      for (const value of Object.values(update.after ?? {})) if (value !== null) values += 1;
    }
    left -= updates.length;
    last = performance.now();
    if (left <= 0) stop.abort();
  },
};
const logger = { debug: console.error, info: console.error, warn: console.error, error: console.error };
console.log("ready");
await new Subscriber({ application: "app0", id: "s", dial: [address], handler, signal: stop.signal, logger }).run();
const { user, system } = process.cpuUsage();
console.log(JSON.stringify({ seconds: [(last - first) / 1000], values: [values], cpu_s: (user + system) / 1e6 }));
