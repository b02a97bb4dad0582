/** When a failed callback is tried again. */

import { comparePositions } from "./datamarker.js";
import type { RetryPolicy } from "./options.js";
import type { UpdatePlace } from "./rowkey.js";

/** Failures of one shard since its last acknowledgement. Outlives an epoch: to send again must not reset the count. */
export class Retry {
  #furthest: UpdatePlace | undefined;
  failures = 0;
  /** Up to this place `onUpdates` gets one update at a time, because one of them fails. */
  singlyUntil: UpdatePlace | undefined;

  constructor(
    readonly policy: RetryPolicy,
    private readonly random: () => number = Math.random,
  ) {}

  /**
   * Counts a failure at `place` (`undefined`: at no update). Returns whether another try follows. A failure behind all
   * earlier ones begins a new count, because what failed before has succeeded since.
   */
  failed(place: UpdatePlace | undefined): boolean {
    if (place !== undefined && (this.#furthest === undefined || isBehind(place, this.#furthest))) {
      if (this.#furthest !== undefined) this.failures = 0;
      this.#furthest = place;
    }
    this.failures++;
    return this.failures < this.policy.attempts;
  }

  /** A datamarker was acknowledged: past failures are over. */
  reset(): void {
    this.failures = 0;
    this.#furthest = undefined;
  }

  /** Milliseconds before the next try. */
  waitMs(): number {
    const { firstWaitMs, longestWaitMs } = this.policy;
    const longest = Math.min(longestWaitMs, firstWaitMs * 2 ** Math.min(this.failures - 1, 64));
    return longest * (1 - this.random() / 2);
  }
}

function isBehind(place: UpdatePlace, other: UpdatePlace): boolean {
  return (comparePositions(place.position, other.position) || place.index - other.index) > 0;
}
