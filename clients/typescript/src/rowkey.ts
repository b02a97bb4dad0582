/** Rows as the protocol names them, and keys of parked rows. */

import type { Position } from "./datamarker.js";
import { comparePositions } from "./datamarker.js";
import { BYTES, countFields, Reader, VARINT } from "./reader.js";
import type { Update } from "./update.js";
import { type Value, valueOf } from "./values.js";

/** A row of a table, or with `whole` the table itself. `values` are encoded; equal keys have equal bytes. */
export interface RowKey {
  readonly table: string;
  readonly values: readonly Uint8Array[];
  readonly whole: boolean;
}

/** Reads a `wormhole.wire.v1.RowKey`. */
export function parseRowKey(data: Uint8Array): RowKey {
  let table = "";
  let whole = false;
  const values: Uint8Array[] = [];
  const reader = new Reader(data);
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | BYTES)) table = reader.text();
    else if (tag === ((2 << 3) | BYTES)) values.push(reader.bytes());
    else if (tag === ((3 << 3) | VARINT)) whole = reader.bool();
    else reader.skip(tag);
  }
  return { table, values, whole };
}

export function keyOf(row: RowKey): Value[] {
  return row.values.map((value) => valueOf(value, 0, value.length));
}

/**
 * The place of an update among those of its flow, however they were divided into batches. `inside`: the transaction was
 * not finished in the batch of the update, so `position` is where it begins.
 */
export interface UpdatePlace {
  readonly position: Position;
  readonly inside: boolean;
  readonly transaction: string;
  readonly index: number;
}

export function placeOf(update: Update): UpdatePlace {
  const { id, position } = update.transaction;
  return { position, inside: update.inUnfinished, transaction: id, index: update.index };
}

/** Negative if `a` is before `b` in the log, 0 if they are one place. */
export function comparePlaces(a: UpdatePlace, b: UpdatePlace): number {
  if (a.transaction === b.transaction) return a.index - b.index;
  const position = comparePositions(a.position, b.position) || Number(a.inside) - Number(b.inside);
  if (position) return position;
  const [scanA, chunkA] = readOrder(a.transaction);
  const [scanB, chunkB] = readOrder(b.transaction);
  return Number(scanA - scanB) || Number(chunkA - chunkB);
}

/** Scan and chunk of the rows of a backfill; of a transaction of the log, which is before them, zeros. */
function readOrder(transaction: string): readonly [bigint, bigint] {
  const found = /^read:(\d{1,20}):(\d{1,20})$/.exec(transaction);
  return found ? [BigInt(found[1] ?? 0), BigInt(found[2] ?? 0)] : [0n, 0n];
}

/** The rows that have parked updates, each with the place of its first one. */
export class ParkedRows {
  readonly #rows = new Map<string, { readonly row: RowKey; first: UpdatePlace }>();
  /** The first place of any row of a table. */
  readonly #tables = new Map<string, UpdatePlace>();

  get size(): number {
    return this.#rows.size;
  }

  add(row: RowKey, place: UpdatePlace): void {
    const own = wholeTable(row) ? { table: row.table, values: [], whole: true } : row;
    const name = nameOf(own);
    const known = this.#rows.get(name);
    if (known === undefined) {
      const values = own.values.map((value) => value.slice());
      this.#rows.set(name, { row: { ...own, values }, first: place });
    } else if (comparePlaces(place, known.first) < 0) known.first = place;
    const table = this.#tables.get(own.table);
    if (table === undefined || comparePlaces(place, table) < 0) this.#tables.set(own.table, place);
  }

  /** Whether an update has to be parked, because one of its rows is and it is not before that. */
  hold(update: Update): boolean {
    if (!this.#tables.has(update.table)) return false;
    const place = placeOf(update);
    return rowsOf(update).some((row) => {
      const earlier = row.whole
        ? [this.#tables.get(row.table)]
        : [this.#rows.get(nameOf(row))?.first, this.#rows.get(nameOf(whole(row.table)))?.first];
      return earlier.some((first) => first !== undefined && comparePlaces(first, place) <= 0);
    });
  }

  /** The keys of a table's parked rows; `undefined` if the whole table is parked. */
  keys(table: string): Value[][] | undefined {
    const rows = [...this.#rows.values()].map(({ row }) => row).filter((row) => row.table === table);
    return rows.some((row) => row.whole) ? undefined : rows.map(keyOf);
  }
}

/** The rows that an update touches: one, both of a change of the key, or the whole table. */
export function rowsOf(update: Update): RowKey[] {
  const { op, table } = update;
  const keys = update.encodedKeys();
  if (op === "truncate" || op === "delete-range" || !keys.length) return [whole(table)];
  return keys.map((values) => ({ table, values, whole: false }));
}

/** Reads a `wormhole.wire.v1.ParkedKey`. */
export function parseParkedKey(data: Uint8Array): [RowKey, UpdatePlace] {
  let row: RowKey = whole("");
  let place: UpdatePlace = { position: ORIGIN, inside: false, transaction: "", index: 0 };
  const reader = new Reader(data);
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | BYTES)) row = parseRowKey(reader.bytes());
    else if (tag === ((2 << 3) | BYTES)) place = parsePlace(reader.bytes());
    else reader.skip(tag);
  }
  return [row, place];
}

/** How many objects {@link parseParkedKey} makes. */
export function countParkedFields(data: Uint8Array): number {
  let fields = 0;
  const reader = new Reader(data);
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | BYTES)) fields += countFields(reader.bytes());
    else reader.skip(tag);
  }
  return fields;
}

const ORIGIN: Position = { incarnation: 0, file: 0n, offset: 0n };

function parsePlace(data: Uint8Array): UpdatePlace {
  let position = ORIGIN;
  let inside = false;
  let transaction = "";
  let index = 0;
  const reader = new Reader(data);
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | BYTES)) position = parsePosition(reader.bytes());
    else if (tag === ((2 << 3) | VARINT)) inside = reader.bool();
    else if (tag === ((3 << 3) | BYTES)) transaction = reader.text();
    else if (tag === ((4 << 3) | VARINT)) index = reader.uint32();
    else reader.skip(tag);
  }
  return { position, inside, transaction, index };
}

function parsePosition(data: Uint8Array): Position {
  let { incarnation, file, offset } = ORIGIN;
  const reader = new Reader(data);
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === ((1 << 3) | VARINT)) incarnation = reader.uint32();
    else if (tag === ((2 << 3) | VARINT)) file = reader.uint64();
    else if (tag === ((3 << 3) | VARINT)) offset = reader.uint64();
    else reader.skip(tag);
  }
  return { incarnation, file, offset };
}

function whole(table: string): RowKey {
  return { table, values: [], whole: true };
}

/** Earlier releases name the whole table by a row without values. */
function wholeTable(row: RowKey): boolean {
  return row.whole || !row.values.length;
}

/** Equal rows have equal names, and others have other names. */
function nameOf(row: RowKey): string {
  const values = row.values.map((value) => `${value.length}:${Buffer.from(value).toString("latin1")}`);
  return `${row.table.length}:${row.table}${row.whole ? "*" : values.join("")}`;
}

