/** Which updates of an epoch get no callback: they are skipped, or the publisher stores them. */

import type { Assigned } from "./session.js";
import { ParkedRows, placeOf, rowsOf } from "./rowkey.js";
import type { Update } from "./update.js";
import type { Value } from "./values.js";

export class Gate {
  readonly #skip: ReadonlySet<string>;
  readonly #parked = new ParkedRows();
  readonly #stored = new Set<string>();
  /** Whether an update whose retries are exhausted is parked. */
  readonly parks: boolean;

  constructor({ frame, parked }: Assigned) {
    this.#skip = new Set(frame.skip);
    this.parks = frame.park;
    for (const [row, place] of parked) this.#parked.add(row, place);
  }

  verdict(update: Update): "call" | "skip" | "park" {
    if (this.#skip.size && this.#skip.has(update.id)) return "skip";
    return this.#parked.size && this.#parked.hold(update) ? "park" : "call";
  }

  /** Whether the update was parked in this epoch: after a rollback it comes again. */
  stored(update: Update): boolean {
    return this.#stored.has(update.id);
  }

  /** The publisher stored the update: later ones of its rows have to be parked, too. */
  parked(update: Update): void {
    this.#stored.add(update.id);
    for (const row of rowsOf(update)) this.#parked.add(row, placeOf(update));
  }

  /** The keys of a table's parked rows; `undefined` if the whole table is parked. */
  keys(table: string): Value[][] | undefined {
    return this.#parked.keys(table);
  }
}
