/**
 * What a flow received and has not acknowledged, in order:
 *
 *     acknowledged | held: taken, finished or running | waiting
 *                  ^ a rollback returns here          ^ taken next
 *
 * Processed batches return their credit, but stay held until a later datamarker is acknowledged, so that a rollback
 * needs nothing from the publisher. The held bytes are bounded; beyond that the updates have to be sent again.
 */

import type { Item } from "./session.js";

const ITEM_BYTES = 64; // memory of a batch in addition to its body

export class FlowLog {
  #waiting: Item[] = [];
  #held: Item[] = [];
  #heldBytes = 0;
  #progress = 0n;
  #whole = true;
  /** A taken item whose callbacks have not all returned. */
  #running: Item | undefined;
  /** Bytes of bodies that wait. */
  waitingBytes = 0;

  constructor(private readonly most: number) {}

  /** Whether a taken item is unfinished: no later datamarker may be acknowledged then. */
  get unfinished(): boolean {
    return this.#running !== undefined;
  }

  /** An item arrived. Of datamarkers that follow one another only the newest stays. */
  append(item: Item): void {
    if (item.kind === "marker" && this.#waiting.at(-1)?.kind === "marker") this.#waiting.pop();
    this.#waiting.push(item);
    this.waitingBytes += bodyOf(item);
  }

  peek(): Item | undefined {
    return this.#waiting[0];
  }

  take(): Item | undefined {
    const item = this.#waiting.shift();
    if (item === undefined) return undefined;
    this.#held.push(item);
    this.#running = item;
    this.waitingBytes -= bodyOf(item);
    return item;
  }

  /** All callbacks of the taken item returned. Gives the number to report as progress, if it rose. */
  finish(item: Item): bigint | undefined {
    this.#running = undefined;
    if (item.kind !== "batch") return undefined;
    this.#heldBytes += weightOf(item);
    while (this.#heldBytes > this.most) {
      const first = this.#held.shift();
      if (first === undefined) break;
      this.#heldBytes -= weightOf(first);
      this.#whole = false;
    }
    if (item.number <= this.#progress) return undefined;
    return (this.#progress = item.number);
  }

  /** Everything that is held was acknowledged. */
  acknowledge(): void {
    this.#held = [];
    this.#heldBytes = 0;
    this.#whole = true;
  }

  /** Lets all held items wait again. Returns false if a part of them has to be sent again. */
  rollback(): boolean {
    if (!this.#whole) return false;
    for (const item of this.#held) this.waitingBytes += bodyOf(item);
    this.#waiting = [...this.#held, ...this.#waiting];
    this.#held = [];
    this.#heldBytes = 0;
    this.#running = undefined;
    return true;
  }

  /** Drops everything. */
  clear(): void {
    this.#waiting = [];
    this.#held = [];
    this.#running = undefined;
    this.#heldBytes = this.waitingBytes = 0;
  }
}

function bodyOf(item: Item): number {
  return item.kind === "batch" ? item.body.length : 0;
}

function weightOf(item: Item): number {
  return item.kind === "batch" ? item.body.length + ITEM_BYTES : 0;
}
