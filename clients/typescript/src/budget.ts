/** The memory that publishers make this process use in addition to updates within their credit. */

import { ProtocolError } from "./errors.js";

/**
 * A limit for all streams together. If something does not fit, the publisher that uses the most loses its stream, and
 * so none can use the memory of another.
 */
export class Budget {
  readonly #accounts = new Set<Account>();
  used = 0;

  constructor(
    readonly limit: number,
    private readonly what: string,
  ) {}

  /** Opens the account of a stream. `end` ends the stream if another one needs its memory. */
  open(owner: () => string, end: (error: ProtocolError) => void): Account {
    const account = new Account(this, owner, end);
    this.#accounts.add(account);
    return account;
  }

  /** @internal */
  makeRoom(account: Account, what: string): void {
    while (this.used > this.limit) {
      const held = new Map<string, number>();
      for (const one of this.#accounts) held.set(one.owner(), (held.get(one.owner()) ?? 0) + one.held);
      const [largest, bytes] = [...held].reduce((a, b) => (b[1] > a[1] ? b : a));
      const error = new ProtocolError(
        `${what} does not fit: this publisher makes the subscriber keep ${bytes} bytes of ${this.what}, and all ` +
          `publishers together may take ${this.limit}`,
        "have more subscribers share the shards, or raise the option maxState or maxUpdate",
      );
      if (largest === account.owner()) throw error;
      const of = [...this.#accounts].filter((one) => one.owner() === largest);
      const victim = of.reduce((a, b) => (b.held > a.held ? b : a));
      victim.close();
      victim.end(error);
    }
  }

  /** @internal */
  forget(account: Account): void {
    if (this.#accounts.delete(account)) this.used -= account.held;
  }
}

/** What one stream uses. A closed account uses nothing, and ignores what is given back. */
export class Account {
  #budget: Budget | undefined;
  held = 0;

  constructor(
    budget: Budget,
    readonly owner: () => string,
    readonly end: (error: ProtocolError) => void,
  ) {
    this.#budget = budget;
  }

  /** Counts `size` more bytes. Throws a `ProtocolError` if this publisher has to stop. */
  charge(size: number, what: string): void {
    const budget = this.#budget;
    if (budget === undefined) return;
    this.held += size;
    budget.used += size;
    try {
      budget.makeRoom(this, what);
    } catch (error) {
      this.release(size);
      throw error;
    }
  }

  release(size: number): void {
    if (this.#budget === undefined) return;
    this.held -= size;
    this.#budget.used -= size;
  }

  close(): void {
    this.#budget?.forget(this);
    this.#budget = undefined;
  }
}
