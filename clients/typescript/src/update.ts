/** One change of one row or key, as a handler receives it. */

import { create, toBinary } from "@bufbuild/protobuf";

import { Body } from "./body.js";
import type { Position } from "./datamarker.js";
import { ProtocolError } from "./errors.js";
import { BatchBodySchema } from "./generated/wormhole/wire/v1/update_pb.js";
import { BYTES, Reader, VARINT } from "./reader.js";
import type { Schema } from "./schema.js";
import { type Value, valueOf } from "./values.js";

/** What happened to a row. `read`: it is an existing row, read from its table by a backfill. */
export type Op = "insert" | "update" | "delete" | "truncate" | "upsert" | "merge" | "delete-range" | "read";

/** A row by the names of its columns. */
export type Row = Readonly<Record<string, Value>>;

/** The commit that an update belongs to. */
export interface Transaction {
  readonly id: string;
  /** The place after it; while it is unfinished the place where it begins. */
  readonly position: Position;
  /** Microseconds since 1970, UTC; `undefined` where the log has no time, and for a READ, which is no commit. */
  readonly committedAtMicros: bigint | undefined;
}

const OPS: readonly (Op | undefined)[] =
  [undefined, "insert", "update", "delete", "truncate", "upsert", "merge", "delete-range", "read"];
const KEY = 2;
const AFTER = 3;
const BEFORE = 4;
const OLD_KEY = 5;
const KEY_END = 6;
const ENTERED = 1;
const LEFT = 2;

/** What the updates of one body share. */
export interface Batch {
  readonly body: Body;
  readonly shard: string;
  readonly epoch: bigint;
  readonly replayed: boolean;
  readonly generation: bigint;
  schemaOf(id: bigint): Schema;
}

/** The places of an update's fields in its bytes; each array has begin and end of every value. */
interface Fields {
  readonly op: Op;
  readonly tooLarge: boolean;
  readonly values: readonly (readonly number[])[];
}

/**
 * One change. Its values are decoded when they are asked for.
 *
 * It keeps the bytes of its whole batch in memory: {@link detach} it to keep it beyond the callback. Values are copies,
 * and may be kept.
 */
export class Update {
  #fields: Fields | undefined;

  /** @internal */
  constructor(
    private readonly batch: Batch,
    private readonly ordinal: number,
    private readonly ends?: boolean,
  ) {}

  /** `<transaction>:<index>`: the same however and how often the update is delivered. */
  get id(): string {
    return `${this.#body.transactionId(this.#tx)}:${this.index}`;
  }

  /** Index within its transaction in the log. */
  get index(): number {
    return this.#body.indexOf(this.ordinal);
  }

  /** Bytes of the update as it was sent. */
  get size(): number {
    const spans = this.#body.spans;
    return (spans[2 * this.ordinal + 1] as number) - (spans[2 * this.ordinal] as number);
  }

  get op(): Op {
    return this.#read().op;
  }

  get schema(): Schema {
    return this.batch.schemaOf(this.#body.schemaIdOf(this.ordinal));
  }

  get table(): string {
    return this.schema.table;
  }

  get shard(): string {
    return this.batch.shard;
  }

  /** The flow's epoch: a fencing token for what this update causes. */
  get epoch(): bigint {
    return this.batch.epoch;
  }

  /** The number of the flow's last backfill; 0: none was asked for. See `onScanEnd`. */
  get generation(): bigint {
    return this.batch.generation;
  }

  /** Whether the flow may have received the update before. */
  get replayed(): boolean {
    return this.batch.replayed;
  }

  /** Values of the key's columns, after the change. Empty for an operation on a whole table. */
  get key(): readonly Value[] {
    return this.#values(KEY);
  }

  /** The key before a change that altered it. */
  get oldKey(): readonly Value[] | undefined {
    return nonEmpty(this.#values(OLD_KEY));
  }

  /** The end, exclusive, of a `delete-range` that begins at `key`. */
  get keyEnd(): readonly Value[] | undefined {
    return nonEmpty(this.#values(KEY_END));
  }

  /** The row after the change; `undefined` where there is none, as after a delete. */
  get after(): Row | undefined {
    return this.#row(AFTER);
  }

  /** The row before the change; `undefined` where the log has none. */
  get before(): Row | undefined {
    return this.#row(BEFORE);
  }

  /** Whether the change brought the row into what the application's filter selects. */
  get entered(): boolean {
    return this.#body.marks[this.ordinal] === ENTERED;
  }

  /** Whether the row left what the application's filter selects: it has to be dropped as if it were deleted. */
  get left(): boolean {
    return this.#body.marks[this.ordinal] === LEFT;
  }

  /** Whether the values were left out because the update is larger than the publisher's `max_update_bytes`. */
  get tooLarge(): boolean {
    return this.#read().tooLarge;
  }

  get transaction(): Transaction {
    const body = this.#body;
    const tx = this.#tx;
    const committedAtMicros = body.committedAtMicros(tx) || undefined;
    return { id: body.transactionId(tx), position: body.positionOf(tx), committedAtMicros };
  }

  /** Whether this is the last update of its transaction that the flow receives. */
  get endsTransaction(): boolean {
    return this.ends ?? this.#body.txEnd[this.#tx] === this.ordinal + 1;
  }

  /**
   * Whether the end of its transaction was not known when it was sent.
   *
   * @internal
   */
  get inUnfinished(): boolean {
    return this.#tx >= this.#body.txEnd.length;
  }

  /** A copy that keeps only its own bytes in memory. */
  detach(): Update {
    return this.detachedAs(this.endsTransaction);
  }

  /** @internal */
  detachedAs(ends: boolean): Update {
    const source = this.#body;
    const tx = this.#tx;
    const body = new Body(this.#bytes().slice());
    body.spans.push(0, body.data.length);
    body.schemaIds.push(source.schemaIdOf(this.ordinal));
    body.updateIndex.push(this.index);
    body.sources.push(source.sourceOf(tx));
    body.txNumber.push(source.txNumber[tx] as bigint);
    const { incarnation, file, offset } = source.positionOf(tx);
    body.incarnation = incarnation;
    body.txFile.push(file);
    body.txOffset.push(offset);
    body.txCommittedAtMicros.push(source.committedAtMicros(tx));
    if (!this.inUnfinished) body.txEnd.push(1);
    if (source.marks.length) body.marks.push(source.marks[this.ordinal] as number);
    return new Update({ ...this.batch, body, schemaOf: this.batch.schemaOf.bind(this.batch) }, 0, ends);
  }

  /**
   * A batch body with this update alone, from which it can be delivered again.
   *
   * @internal
   */
  encoded(): Uint8Array {
    const { body } = this.detach().batch;
    const { schemaIds, updateIndex, sources, txNumber, incarnation, txFile, txOffset, txEnd, marks } = body;
    const txCommittedAtUs = body.txCommittedAtMicros;
    const message = { schemaIds, updateIndex, sources, txNumber, incarnation, txFile, txOffset, txEnd, marks };
    return toBinary(
      BatchBodySchema,
      create(BatchBodySchema, { ...message, txCommittedAtUs, updates: [body.data] }),
    );
  }

  /**
   * The encoded values of the key and of the former key, in that order; empty for an update without a key.
   *
   * @internal
   */
  encodedKeys(): Uint8Array[][] {
    const { values } = this.#read();
    const data = this.#body.data;
    const rows = [values[KEY], values[OLD_KEY]] as (readonly number[])[];
    return rows.filter((row) => row.length).map((row) => spansOf(row, (begin, end) => data.subarray(begin, end)));
  }

  toString(): string {
    return `${this.id} ${this.op} ${this.table}`;
  }

  get #body(): Body {
    return this.batch.body;
  }

  get #tx(): number {
    return this.#body.transactionOf(this.ordinal);
  }

  #bytes(): Uint8Array {
    const { data, spans } = this.#body;
    return data.subarray(spans[2 * this.ordinal], spans[2 * this.ordinal + 1]);
  }

  #values(field: number): readonly Value[] {
    const data = this.#body.data;
    const spans = this.#read().values[field] as readonly number[];
    return this.#explained(() => spansOf(spans, (begin, end) => valueOf(data, begin, end)));
  }

  #row(field: number): Row | undefined {
    const values = this.#values(field);
    if (!values.length) return undefined;
    const { columns } = this.schema;
    const row: Record<string, Value> = {};
    if (values.length !== columns.length) {
      throw new ProtocolError(`update ${this.id}: ${values.length} values for ${columns.length} columns`);
    }
    columns.forEach(({ name }, i) => {
      // A column may be named `__proto__`.
      if (name in row) Object.defineProperty(row, name, { value: values[i], enumerable: true });
      else row[name] = values[i] as Value;
    });
    return row;
  }

  #read(): Fields {
    return (this.#fields ??= this.#explained(() => {
      const { data, spans } = this.#body;
      return fieldsOf(new Reader(data, spans[2 * this.ordinal], spans[2 * this.ordinal + 1]));
    }));
  }

  #explained<T>(read: () => T): T {
    try {
      return read();
    } catch (error) {
      if (error instanceof ProtocolError) {
        throw new ProtocolError(`update ${this.id} is no valid row: ${error.message}`);
      }
      throw error;
    }
  }
}

function fieldsOf(reader: Reader): Fields {
  let op = 0;
  let tooLarge = false;
  const values: number[][] = [[], [], [], [], [], [], []];
  while (!reader.done) {
    const tag = reader.tag();
    const field = tag >>> 3;
    if ((tag & 7) === BYTES && field >= KEY && field <= KEY_END) {
      const end = reader.span();
      (values[field] as number[]).push(reader.at, end);
      reader.at = end;
    } else if (tag === ((1 << 3) | VARINT)) op = reader.uint32();
    else if (tag === ((7 << 3) | VARINT)) tooLarge = reader.bool();
    else reader.skip(tag);
  }
  const name = OPS[op];
  if (name === undefined) throw new ProtocolError(`operation ${op} is not known`);
  return { op: name, tooLarge, values };
}

function spansOf<T>(spans: readonly number[], read: (begin: number, end: number) => T): T[] {
  const found: T[] = [];
  for (let i = 0; i < spans.length; i += 2) found.push(read(spans[i] as number, spans[i + 1] as number));
  return found;
}

function nonEmpty(values: readonly Value[]): readonly Value[] | undefined {
  return values.length ? values : undefined;
}

/** The updates of a batch, in the order of the log. */
export function updatesOf(batch: Batch): Update[] {
  return Array.from({ length: batch.body.updates }, (_, ordinal) => new Update(batch, ordinal));
}
