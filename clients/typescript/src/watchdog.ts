/** Limits how long one callback runs, by the signal that it was given. */

import { HandlerTimeout } from "./errors.js";

export class Watchdog {
  readonly #timer: NodeJS.Timeout;
  #controller = new AbortController();
  #running = false;

  constructor(private readonly limitMs: number) {
    this.#timer = setTimeout(() => this.#expire(), limitMs);
    this.#timer.unref();
  }

  /** The signal for the next callback. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Waits for a callback. If it was aborted, it has failed, unless it returned all the same. */
  async watch<T>(running: PromiseLike<T>): Promise<T> {
    this.#running = true;
    this.#timer.refresh();
    try {
      return await running;
    } finally {
      this.#running = false;
    }
  }

  /** Asks the running callback, and every later one, to end. */
  abort(reason: Error): void {
    clearTimeout(this.#timer);
    this.#controller.abort(reason);
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #expire(): void {
    if (!this.#running) return; // `watch` starts the timer anew
    const expired = this.#controller;
    this.#controller = new AbortController();
    expired.abort(new HandlerTimeout(`a callback ran longer than handlerTimeoutMs = ${this.limitMs}`));
  }
}
