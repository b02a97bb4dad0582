/**
 * One epoch of a flow on its stream: what the publisher may send (numbers, credit, parts), and what was answered.
 *
 *     flow   = Assign [ opened ] [ Revoke ]          opened only after our Accepted
 *     opened = { batch | Datamarker | DataLoss | ShardNotice | ChunkEnd | ScanEnd }
 *     batch  = Batch | Part(index 0) ... Part(last)  numbered 1, 2, 3 ...
 */

import type { Datamarker } from "./datamarker.js";
import { comparePositions } from "./datamarker.js";
import { ProtocolError } from "./errors.js";
import type { Batch, Part } from "./generated/wormhole/wire/v1/push_pb.js";

const LEAST_BODY = 64; // bytes of a body with one update are more
const LEAST_IN_FLIGHT = 1024;

/** `failed`: what arrives is dropped until the publisher revokes or assigns again. */
export type Phase = "assigned" | "open" | "failed" | "revoked";

interface Parts {
  readonly body: Uint8Array;
  filled: number;
  index: number;
}

export class StreamFlow {
  phase: Phase = "assigned";
  credit = 0;
  /** Bytes of bodies that arrived and are not processed. */
  inFlight = 0;
  /** The last batch that was reported as processed. */
  progressed = 0n;
  /** Whether a data loss is not decided yet. */
  deciding = false;
  /** Bytes that are counted for the flow. */
  kept = 0;
  /** Bytes above the credit that are counted. */
  excessCharged = 0;
  #last = 0n;
  #unfinished = false;
  #sizes: { number: bigint; size: number }[] = [];
  #parts: Parts | undefined;
  #waiting: { marker: Datamarker | undefined; size: number }[] = [];

  constructor(
    readonly number: number,
    readonly epoch: bigint,
    readonly shard: string,
    readonly generation: bigint,
    private readonly maxBody: number,
  ) {}

  /** Bytes by which the last batch is larger than the credit. Such a batch is sent alone. */
  get excess(): number {
    return this.credit ? Math.max(0, this.inFlight - this.credit) : 0;
  }

  batch(frame: Batch): Uint8Array {
    this.between("batch");
    this.#begin("batch", frame.number, frame.body.length, "body");
    this.#unfinished = frame.unfinished;
    return frame.body;
  }

  /** `admit`: called before memory for a body is taken; it may refuse. Returns the body with its last part. */
  part(frame: Part, admit: () => boolean): Uint8Array | undefined {
    this.#opened("part");
    let parts = this.#parts;
    if (parts === undefined) {
      if (frame.index) throw this.#broken("part.index", `${frame.index} begins a batch; 0 was due`);
      this.#begin("part", frame.number, Number(frame.totalBytes), "total_bytes");
      if (!admit()) return undefined;
      parts = this.#parts = { body: new Uint8Array(Number(frame.totalBytes)), filled: 0, index: 0 };
    } else if (frame.number !== this.#last) {
      throw this.#broken("part.number", `${frame.number} comes amid the parts of batch ${this.#last}`);
    } else if (frame.index !== parts.index) {
      throw this.#broken("part.index", `${frame.index} came where ${parts.index} was due`);
    } else if (frame.totalBytes !== BigInt(parts.body.length)) {
      throw this.#broken("part.total_bytes", `${frame.totalBytes} here, ${parts.body.length} in the first part`);
    }
    const got = parts.filled + frame.data.length;
    if (!frame.data.length) throw this.#broken("part.data", "empty");
    if (got > parts.body.length || (frame.last && got !== parts.body.length)) {
      throw this.#broken("part.data", `${got} bytes so far, total_bytes is ${parts.body.length}`);
    }
    parts.body.set(frame.data, parts.filled);
    parts.filled = got;
    parts.index++;
    if (!frame.last) return undefined;
    this.#parts = undefined;
    this.#unfinished = frame.unfinished;
    return parts.body;
  }

  /** A frame of this kind comes between batches. */
  between(kind: string): void {
    this.#opened(kind);
    if (this.#parts !== undefined) throw this.#broken(`${kind}.flow`, `came amid the parts of batch ${this.#last}`);
  }

  /** A frame of a backfill comes between transactions. */
  betweenTransactions(kind: string): void {
    this.between(kind);
    if (!this.generation) throw this.#broken(`${kind}.flow`, "came to a flow that was assigned without a generation");
    if (this.#unfinished) {
      throw this.#broken(`${kind}.flow`, `came amid a transaction, which goes on behind batch ${this.#last}`);
    }
  }

  /** Counts a frame that is kept until a marker is acknowledged: its own, or a later one. */
  keep(size: number, marker?: Datamarker): void {
    this.#waiting.push({ marker, size });
    this.kept += size;
  }

  /** Whether `marker` was offered in this epoch. Forgets frames up to it; returns their bytes. */
  acknowledged(marker: Datamarker): number {
    let upto = 0;
    for (const [i, waiting] of this.#waiting.entries()) {
      if (waiting.marker === undefined) continue;
      if (comparePositions(waiting.marker.order, marker.order) > 0) break;
      upto = i + 1;
      if (waiting.marker === marker) break; // later ones may have the same place, with more of a backfill
    }
    const size = this.#waiting.splice(0, upto).reduce((sum, waiting) => sum + waiting.size, 0);
    this.kept -= size;
    return size;
  }

  progress(number: bigint): void {
    this.progressed = number;
    let done = 0;
    for (; done < this.#sizes.length; done++) {
      const first = this.#sizes[done];
      if (first === undefined || first.number > number) break;
      this.inFlight -= first.size;
    }
    this.#sizes.splice(0, done);
  }

  close(phase: "failed" | "revoked"): void {
    this.phase = phase;
    this.#parts = undefined;
  }

  #begin(kind: string, number: bigint, size: number, field: string): void {
    const due = this.#last + 1n;
    if (number !== due) throw this.#broken(`${kind}.number`, `${number} came where ${due} was due`);
    if (!size) throw this.#broken(`${kind}.${field}`, "empty");
    if (size > this.maxBody) throw this.#broken(`${kind}.${field}`, `${size} bytes; at most ${this.maxBody} are taken`);
    if (this.inFlight && this.inFlight + size > this.credit) {
      const what = `${size} bytes with ${this.inFlight} in flight go over the credit of ${this.credit}`;
      throw this.#broken(`${kind}.${field}`, what);
    }
    if (this.#sizes.length >= Math.max(LEAST_IN_FLIGHT, Math.floor(this.credit / LEAST_BODY))) {
      throw this.#broken(`${kind}.number`, `${this.#sizes.length} batches are in flight`);
    }
    this.#last = number;
    this.inFlight += size;
    this.#sizes.push({ number, size });
  }

  #opened(kind: string): void {
    if (this.phase === "assigned") throw this.#broken(`${kind}.flow`, "came before Accepted was sent");
  }

  #broken(field: string, what: string): ProtocolError {
    return new ProtocolError(`${field} of flow ${this.number} epoch ${this.epoch}: ${what}`);
  }
}
