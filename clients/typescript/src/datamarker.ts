/** Places in a log. */

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";

import { ProtocolError } from "./errors.js";
import { type Datamarker as Message, DatamarkerSchema, PositionSchema } from "./generated/wormhole/wire/v1/push_pb.js";

const MOST_BACKFILL = 16 << 10;

/** A place in one log: what is read next. */
export interface Position {
  readonly incarnation: number;
  readonly file: bigint;
  readonly offset: bigint;
}

/** Negative if `a` is before `b`, 0 if both are one place. */
export function comparePositions(a: Position, b: Position): number {
  return a.incarnation - b.incarnation || order(a.file, b.file) || order(a.offset, b.offset);
}

function order(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/**
 * A place up to which a shard can be acknowledged, always between two transactions.
 *
 * An application that keeps its own datamarker stores {@link toBytes} in the transaction that stores its state, and
 * returns the datamarker from `onAssigned`.
 */
export class Datamarker {
  readonly order: Position;

  constructor(
    /** @internal */
    readonly message: Message,
    where = "datamarker",
  ) {
    if (message.order === undefined) throw new ProtocolError(`${where}: order is missing`);
    if (message.backfill.length > MOST_BACKFILL) {
      const size = message.backfill.length;
      throw new ProtocolError(`${where}: backfill has ${size} bytes; at most ${MOST_BACKFILL} are taken`);
    }
    this.order = message.order;
  }

  /** The logical place: a GTID set, an LSN with its timeline, or a sequence number. */
  get delivered(): string {
    return this.message.delivered;
  }

  /** Commit time of the last transaction before this place, in microseconds since 1970, UTC; `undefined`: not known. */
  get committedAtMicros(): bigint | undefined {
    return this.message.committedAtUs || undefined;
  }

  equals(other: Datamarker): boolean {
    return Buffer.compare(this.toBytes(), other.toBytes()) === 0;
  }

  /** The form to be stored. */
  toBytes(): Uint8Array {
    return toBinary(DatamarkerSchema, this.message);
  }

  /** The inverse of {@link toBytes}. */
  static fromBytes(data: Uint8Array): Datamarker {
    let message: Message;
    try {
      message = fromBinary(DatamarkerSchema, data);
    } catch (error) {
      throw new ProtocolError(`stored datamarker is no valid message: ${String(error)}`);
    }
    return new Datamarker(message, "stored datamarker");
  }

  toString(): string {
    const { incarnation, file, offset } = this.order;
    return `${incarnation}/${file}/${offset}`;
  }
}

/** A datamarker at a position, for tests. */
export function datamarkerAt(position: Position, delivered = ""): Datamarker {
  const order = create(PositionSchema, position);
  return new Datamarker(create(DatamarkerSchema, { order, delivered }));
}
