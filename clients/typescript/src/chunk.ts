/** The ends of ranges and tables of a backfill. */

import { ProtocolError } from "./errors.js";
import type { ScanEnd as ScanEndFrame } from "./generated/wormhole/wire/v1/push_pb.js";
import type { ChunkEnd, Key } from "./handler.js";
import { BYTES, countFields, FIXED64, Reader, VARINT } from "./reader.js";
import { parseRowKey, type RowKey } from "./rowkey.js";
import { hex, type Schema } from "./schema.js";
import { Decimal, type Value, valueOf } from "./values.js";

const MOST_BYTES = 512 << 10;
const MOST_KEYS = 4096;
const MOST_FIELDS = 2 * MOST_KEYS + 64;
const LONGEST_NAME = 1024;
const PORTABLE = new Set(["bytes", "int", "uint"]);

/** A `wormhole.wire.v1.ChunkEnd`, whose keys are not decoded. */
export interface ChunkEndFrame {
  readonly flow: number;
  readonly epoch: bigint;
  readonly schema: bigint;
  readonly after: RowKey | undefined;
  readonly until: RowKey | undefined;
  readonly except: readonly RowKey[];
  readonly alone: readonly RowKey[];
  readonly portable: boolean;
  readonly narrowed: boolean;
  readonly rows: bigint;
  readonly size: number;
}

export function parseChunkEnd(data: Uint8Array): ChunkEndFrame {
  if (data.length > MOST_BYTES) throw wrong("", `${data.length} bytes; at most ${MOST_BYTES} are taken`);
  if (countFields(data) > MOST_FIELDS) throw wrong("", `more than ${MOST_FIELDS} fields`);
  const own = data.slice(); // its keys are kept until it is worked on
  let [flow, epoch, schema, rows] = [0, 0n, 0n, 0n];
  let [portable, narrowed] = [false, false];
  const ends: { after?: RowKey; until?: RowKey } = {};
  const except: RowKey[] = [];
  const alone: RowKey[] = [];
  const reader = new Reader(own);
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | VARINT)) flow = reader.uint32();
    else if (tag === ((2 << 3) | VARINT)) epoch = reader.uint64();
    else if (tag === ((3 << 3) | FIXED64)) schema = reader.fixed64();
    else if (tag === ((4 << 3) | BYTES)) ends.after = parseRowKey(reader.bytes());
    else if (tag === ((5 << 3) | BYTES)) ends.until = parseRowKey(reader.bytes());
    else if (tag === ((6 << 3) | BYTES)) except.push(parseRowKey(reader.bytes()));
    else if (tag === ((7 << 3) | BYTES)) alone.push(parseRowKey(reader.bytes()));
    else if (tag === ((8 << 3) | VARINT)) portable = reader.bool();
    else if (tag === ((9 << 3) | VARINT)) narrowed = reader.bool();
    else if (tag === ((10 << 3) | VARINT)) rows = reader.uint64();
    else reader.skip(tag);
  }
  const { after, until } = ends;
  return { flow, epoch, schema, after, until, except, alone, portable, narrowed, rows, size: data.length };
}

/** The range of a frame. Throws a `ProtocolError` unless it is a range of keys of the schema. */
export function rangeOf(frame: ChunkEndFrame, schema: Schema | undefined, generation: bigint): ChunkEnd {
  if (schema === undefined) throw wrong(".schema", `${hex(frame.schema)} was not sent on this stream`);
  if (!schema.key.length) throw wrong(".schema", `${schema.table} has no key`);
  const strange = schema.key.find((column) => !PORTABLE.has(column.type));
  if (frame.portable && strange) throw wrong(".portable", `key column ${strange.name} is ${strange.type}`);
  for (const name of ["except", "alone"] as const) {
    if (frame[name].length > MOST_KEYS) throw wrong(`.${name}`, `more than ${MOST_KEYS} keys`);
  }
  const key = (name: string) => (row: RowKey) => checkedKey(name, row, schema);
  const after = frame.after && key("after")(frame.after);
  const until = frame.until && key("until")(frame.until);
  if (frame.alone.length && (frame.portable || after || until)) {
    throw wrong(".alone", "single keys and a range in one frame");
  }
  if (frame.portable && after && until && compareKeys(after, until) >= 0) {
    throw wrong(".until", "is not above chunk_end.after");
  }
  return {
    table: schema.table,
    generation,
    columns: schema.key.map((column) => column.name),
    after,
    until,
    alone: frame.alone.map(key("alone")),
    except: frame.except.map(key("except")),
    rows: frame.rows,
  };
}

/** Whether something follows from the range: not if the backfill has a filter of its own, or an order unknown here. */
export function isConclusive(frame: ChunkEndFrame): boolean {
  return !frame.narrowed && (frame.portable || frame.alone.length > 0);
}

export function checkScanEnd(frame: ScanEndFrame, generation: bigint): void {
  if (!frame.table) throw new ProtocolError("scan_end.table: empty");
  if ([...frame.table].length > LONGEST_NAME) throw new ProtocolError(`scan_end.table: longer than ${LONGEST_NAME}`);
  if (frame.generation !== generation) {
    throw new ProtocolError(`scan_end.generation: ${frame.generation}; the flow was assigned in ${generation}`);
  }
}

function checkedKey(name: string, row: RowKey, schema: Schema): Key {
  if (row.whole || (row.table && row.table !== schema.table)) throw wrong(`.${name}`, `no key of ${schema.table}`);
  if (row.values.length !== schema.key.length) {
    throw wrong(`.${name}`, `${row.values.length} values for the ${schema.key.length} columns of the key`);
  }
  return row.values.map((data, i) => {
    const value = valueOf(data, 0, data.length);
    const { name: column, type } = schema.key[i] as Schema["key"][number];
    if (!fits(value, type)) throw wrong(`.${name}`, `a value for column ${column} that is no ${type}`);
    return value;
  });
}

function fits(value: Value, type: string): boolean {
  switch (type) {
    case "bytes":
      return value instanceof Uint8Array;
    case "text":
      return typeof value === "string";
    case "int":
    case "uint":
      return typeof value === "bigint";
    case "double":
      return typeof value === "number";
    case "bool":
      return typeof value === "boolean";
    case "decimal":
      return value instanceof Decimal || typeof value === "string";
    default:
      return false;
  }
}

/** The order of keys that have only integers and bytes. */
function compareKeys(a: Key, b: Key): number {
  for (const [i, one] of a.entries()) {
    const other = b[i];
    if (one instanceof Uint8Array && other instanceof Uint8Array) {
      const order = Buffer.compare(one, other);
      if (order) return order;
    } else if (typeof one === "bigint" && typeof other === "bigint" && one !== other) return one < other ? -1 : 1;
  }
  return 0;
}

function wrong(field: string, what: string): ProtocolError {
  return new ProtocolError(`chunk_end${field}: ${what}`);
}
