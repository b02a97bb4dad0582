/** Updates for a loop, in place of a handler. */

import type { Flow, Handler } from "./handler.js";
import type { SubscriberOptions } from "./options.js";
import { Subscriber } from "./subscriber.js";
import type { Update } from "./update.js";

/** An item that waits for the loop. */
interface Offer<T> {
  readonly item: T;
  readonly resolve: () => void;
  readonly reject: (why: Error) => void;
}

export type IterationOptions = Omit<SubscriberOptions, "handler">;

/**
 * Iterates over updates. Each step of the loop says that the update before it is processed. Its shard gets the next
 * one then, so a loop handles the updates of all shards one after the other.
 *
 * The loop ends when `signal` is aborted. To leave it, by `break` or an error, stops the subscriber gracefully; the
 * update of the last step counts as not processed, and is delivered again. The time between two steps is limited by
 * `handlerTimeoutMs`: an update that took longer is delivered again.
 *
 * ```ts
 * for await (const update of updates({ application: "cache", dial: ["127.0.0.1:7490"], signal })) {
 *   console.log(update.op, update.key);
 * }
 * ```
 */
export function updates(options: IterationOptions): AsyncGenerator<Update, void, undefined> {
  return iterated<Update>(options, (offer) => ({ onUpdate: offer }));
}

/** As {@link updates}, with several updates of one shard in each step. */
export function batches(options: IterationOptions): AsyncGenerator<readonly Update[], void, undefined> {
  return iterated<readonly Update[]>(options, (offer) => ({ onUpdates: offer }));
}

async function* iterated<T>(
  options: IterationOptions,
  handlerOf: (offer: (item: T, flow: Flow) => Promise<void>) => Handler,
): AsyncGenerator<T, void, undefined> {
  const offers = new Set<Offer<T>>();
  const left = new AbortController();
  let ended = false;
  const isOver = (): boolean => ended;
  let wake = (): void => undefined;
  const handler = handlerOf(async (item, { signal }) => {
    await new Promise<void>((resolve, reject) => {
      const offer = { item, resolve, reject };
      signal.addEventListener("abort", () => {
        offers.delete(offer);
        reject(signal.reason as Error);
      }, { once: true });
      offers.add(offer);
      wake();
    });
  });
  const signal = options.signal ? AbortSignal.any([options.signal, left.signal]) : left.signal;
  const running = new Subscriber({ ...options, handler, signal }).run().finally(() => {
    ended = true;
    wake();
  });
  let current: Offer<T> | undefined;
  try {
    for (;;) {
      while (!offers.size && !isOver()) await new Promise<void>((resolve) => (wake = resolve));
      [current] = offers;
      if (current === undefined) break;
      offers.delete(current);
      yield current.item;
      current.resolve();
    }
  } finally {
    left.abort();
    // By then each shard is leaving: what fails is not tried again.
    setImmediate(() => {
      for (const { reject } of current ? [current, ...offers] : offers) reject(new Error("the loop was left"));
    });
    await running;
  }
}
