/** The columns of a batch body. Rows stay encoded. */

import type { Position } from "./datamarker.js";
import { ProtocolError } from "./errors.js";
import { BYTES, FIXED64, Reader, VARINT } from "./reader.js";

const MOST_UPDATES = 1 << 18;
const LONGEST_SOURCE = 1000;
const SMALL = 2 << 20; // what such a body becomes is bounded by its size
const MOST_BESIDE = 8 << 20;

/** A body that was checked: every array has the length that the format requires. */
export class Body {
  /** Begin and end of each update in `data`. */
  readonly spans: number[] = [];
  readonly schemaIds: bigint[] = [];
  readonly schemaIndex: number[] = [];
  readonly updateIndex: number[] = [];
  firstIndex = 0;
  readonly sources: string[] = [];
  readonly txSource: number[] = [];
  readonly txNumber: bigint[] = [];
  incarnation = 0;
  readonly txFile: bigint[] = [];
  readonly txOffset: bigint[] = [];
  readonly txCommittedAtMicros: bigint[] = [];
  readonly txEnd: number[] = [];
  readonly marks: number[] = [];
  #lastTx = 0;

  constructor(readonly data: Uint8Array) {}

  get updates(): number {
    return this.spans.length / 2;
  }

  /** The ordinal of the transaction of an update. Cheap if updates are asked for in order. */
  transactionOf(ordinal: number): number {
    const ends = this.txEnd;
    let tx = this.#lastTx;
    if (tx > 0 && (ends[tx - 1] as number) > ordinal) tx = 0;
    while (tx < ends.length && (ends[tx] as number) <= ordinal) tx++;
    this.#lastTx = tx;
    return tx;
  }

  /** Index of the update within its transaction in the log. */
  indexOf(ordinal: number): number {
    if (this.updateIndex.length) return this.updateIndex[ordinal] as number;
    const tx = this.transactionOf(ordinal);
    return tx > 0 ? ordinal - (this.txEnd[tx - 1] as number) : ordinal + this.firstIndex;
  }

  schemaIdOf(ordinal: number): bigint {
    return this.schemaIds[at(this.schemaIndex, ordinal) ?? 0] as bigint;
  }

  sourceOf(tx: number): string {
    return this.sources[at(this.txSource, tx) ?? 0] as string;
  }

  transactionId(tx: number): string {
    return `${this.sourceOf(tx)}:${this.txNumber[tx] as bigint}`;
  }

  /** The place after a transaction; of an unfinished one the place where it begins. */
  positionOf(tx: number): Position {
    const file = at(this.txFile, tx) as bigint;
    return { incarnation: this.incarnation, file, offset: this.txOffset[tx] as bigint };
  }

  committedAtMicros(tx: number): bigint {
    return at(this.txCommittedAtMicros, tx) as bigint;
  }
}

/** One entry may stand for all. */
function at<T>(values: readonly T[], i: number): T | undefined {
  return values.length === 1 ? values[0] : values[i];
}

/** Opens a body. Throws a `ProtocolError` that names the field. */
export function parseBody(data: Uint8Array): Body {
  const body = new Body(data);
  try {
    read(body, new Reader(data));
  } catch (error) {
    if (error instanceof ProtocolError) throw new ProtocolError(`batch body: ${error.message}`);
    throw error;
  }
  check(body);
  return body;
}

function read(body: Body, reader: Reader): void {
  let updates = 0;
  while (!reader.done) {
    const begin = reader.at;
    const tag = reader.tag();
    if (tag === ((1 << 3) | BYTES)) {
      const end = reader.span();
      body.spans.push(reader.at, end);
      reader.at = end;
      if (body.updates > MOST_UPDATES) throw new ProtocolError(`more than ${MOST_UPDATES} updates`);
      updates += end - begin;
    } else {
      column(body, reader, tag);
      if (reader.data.length > SMALL && reader.at - updates > MOST_BESIDE) {
        throw new ProtocolError(`more than ${MOST_BESIDE} bytes beside its updates`);
      }
    }
  }
}

function column(body: Body, reader: Reader, tag: number): void {
  switch (tag >>> 3) {
    case 2:
      return values(reader, tag, FIXED64, () => body.schemaIds.push(reader.fixed64()));
    case 3:
      return values(reader, tag, VARINT, () => body.schemaIndex.push(reader.uint32()));
    case 4:
      return values(reader, tag, VARINT, () => body.updateIndex.push(reader.uint32()));
    case 5:
      return values(reader, tag, VARINT, () => (body.firstIndex = reader.uint32()));
    case 6:
      return values(reader, tag, BYTES, () => body.sources.push(reader.text()));
    case 7:
      return values(reader, tag, VARINT, () => body.txSource.push(reader.uint32()));
    case 8:
      return values(reader, tag, VARINT, () => body.txNumber.push(reader.uint64()));
    case 9:
      return values(reader, tag, VARINT, () => (body.incarnation = reader.uint32()));
    case 10:
      return values(reader, tag, VARINT, () => body.txFile.push(reader.uint64()));
    case 11:
      return values(reader, tag, VARINT, () => body.txOffset.push(reader.uint64()));
    case 12:
      return values(reader, tag, VARINT, () => body.txCommittedAtMicros.push(reader.sint64()));
    case 13:
      return values(reader, tag, VARINT, () => body.txEnd.push(reader.uint32()));
    case 14:
      return values(reader, tag, VARINT, () => body.marks.push(reader.uint32()));
    default:
      reader.skip(tag);
  }
}

/** One value, or several packed ones; a field of another wire type is passed over, as protobuf requires. */
function values(reader: Reader, tag: number, type: number, read: () => void): void {
  const given = tag & 7;
  if (given === type) read();
  else if (given === BYTES) {
    const end = reader.span();
    while (reader.at < end) read();
    if (reader.at > end) throw new ProtocolError(`field ${tag >>> 3}: a packed value is cut off`);
  } else reader.skip(tag);
}

function check(body: Body): void {
  const updates = body.updates;
  const transactions = body.txNumber.length;
  const columns: [string, readonly unknown[], readonly number[]][] = [
    ["schema_index", body.schemaIndex, [0, 1, updates]],
    ["update_index", body.updateIndex, [0, updates]],
    ["tx_source", body.txSource, [0, 1, transactions]],
    ["tx_file", body.txFile, [Math.min(1, transactions), transactions]],
    ["tx_offset", body.txOffset, [transactions]],
    ["tx_committed_at_us", body.txCommittedAtMicros, [Math.min(1, transactions), transactions]],
    ["tx_end", body.txEnd, [transactions, Math.max(0, transactions - 1)]],
    ["marks", body.marks, [0, updates]],
  ];
  if (transactions > MOST_UPDATES) throw wrong(`more than ${MOST_UPDATES} transactions`);
  for (const [name, values, allowed] of columns) {
    if (!allowed.includes(values.length)) {
      throw wrong(`${name} has ${values.length} entries for ${updates} updates in ${transactions} transactions`);
    }
  }
  if (body.sources.some((source) => source.length > LONGEST_SOURCE)) {
    throw wrong(`sources: one is longer than ${LONGEST_SOURCE} characters`);
  }
  if (updates && !transactions) throw wrong(`${updates} updates in no transaction`);
  let before = 0;
  for (const end of body.txEnd) {
    if (end < before || end > updates) throw wrong("tx_end must ascend and not pass the number of updates");
    before = end;
  }
  if (transactions && body.txEnd.length === transactions && before !== updates) {
    throw wrong("updates after the end of the last transaction");
  }
  within("schema_index", body.schemaIndex, body.schemaIds.length, updates);
  within("tx_source", body.txSource, body.sources.length, transactions);
}

function within(name: string, indexes: readonly number[], table: number, used: number): void {
  if (used && (table === 0 || indexes.some((index) => index >= table))) {
    throw wrong(`${name} points past its table of ${table}`);
  }
}

function wrong(what: string): ProtocolError {
  return new ProtocolError(`batch body: ${what}`);
}
