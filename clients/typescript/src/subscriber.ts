/** A subscriber that dials its publishers. */

import { Dialler } from "./dialler.js";
import { type Settings, settingsOf, type SubscriberOptions } from "./options.js";
import { Shards } from "./shards.js";

/**
 * Receives the updates of an application.
 *
 * ```ts
 * const subscriber = new Subscriber({ application: "cache", dial: ["127.0.0.1:7490"], handler, signal });
 * await subscriber.run();
 * ```
 */
export class Subscriber {
  readonly #settings: Settings;
  readonly #shards: Shards;
  #running: Promise<void> | undefined;

  /** Throws a `ConfigError` that names every option that is wrong. */
  constructor(options: SubscriberOptions) {
    this.#settings = settingsOf(options);
    this.#shards = new Shards(this.#settings);
  }

  /** The shards that this process has, each with its epoch. */
  get shards(): ReadonlyMap<string, bigint> {
    return this.#shards.assigned;
  }

  /**
   * Receives until `signal` is aborted, and then stops gracefully: running callbacks may end, their datamarkers are
   * acknowledged, and every shard is released. It does not end because of a publisher, which is dialled again.
   */
  async run(): Promise<void> {
    await (this.#running ??= this.#run());
  }

  async #run(): Promise<void> {
    const { dial, signal, stopTimeoutMs } = this.#settings;
    const stopped = new AbortController();
    const diallers = dial.map((address) => new Dialler(address, this.#settings, this.#shards, stopped.signal));
    const dialling = Promise.all(diallers.map((dialler) => dialler.run()));
    await Promise.race([dialling, aborted(signal)]);
    stopped.abort();
    await this.#shards.leave(stopTimeoutMs);
    for (const dialler of diallers) dialler.leave();
    await dialling;
  }
}

function aborted(signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) resolve();
    signal?.addEventListener("abort", () => resolve(), { once: true });
  });
}
