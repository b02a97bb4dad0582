/** What the values of an update mean. */

import { createHash } from "node:crypto";

import { ProtocolError } from "./errors.js";
import { BYTES, Reader } from "./reader.js";

/** One named value; `type` is `bytes`, `text`, `int`, `uint`, `double`, `bool`, `decimal`, `entries` or `hash`. */
export interface Column {
  readonly name: string;
  readonly type: string;
}

/** A table's name, the columns of its key, and its other columns, in the order of an update's values. */
export interface Schema {
  readonly id: bigint;
  readonly table: string;
  readonly key: readonly Column[];
  readonly columns: readonly Column[];
  /** Its serialized form, of which `id` is a hash. */
  readonly canonical: Uint8Array;
}

const TABLE = (1 << 3) | BYTES;
const KEY = (2 << 3) | BYTES;
const COLUMNS = (3 << 3) | BYTES;
const NAME = TABLE;
const TYPE = KEY;

/** The schema with these canonical bytes, whose hash has to be `id`. */
export function parseSchema(id: bigint, canonical: Uint8Array): Schema {
  const hash = createHash("sha256").update(canonical).digest().readBigUInt64BE(0);
  if (hash !== id) throw new ProtocolError(`schema.id: ${hex(id)}, but its canonical bytes hash to ${hex(hash)}`);
  let table = "";
  const key: Column[] = [];
  const columns: Column[] = [];
  let last = 0;
  const reader = new Reader(canonical.slice());
  while (!reader.done) {
    const tag = reader.tag();
    if (tag < last || (tag === TABLE && last === TABLE)) throw notCanonical(id);
    last = tag;
    if (tag === TABLE) table = reader.text();
    else if (tag === KEY) key.push(columnOf(id, reader.bytes()));
    else if (tag === COLUMNS) columns.push(columnOf(id, reader.bytes()));
    else throw notCanonical(id);
  }
  return { id, table, key, columns, canonical: reader.data };
}

/** An id as the logs of all components show it. */
export function hex(id: bigint): string {
  return `0x${id.toString(16).padStart(16, "0")}`;
}

function columnOf(id: bigint, data: Uint8Array): Column {
  let name = "";
  let type = "";
  let last = 0;
  const reader = new Reader(data);
  while (!reader.done) {
    const tag = reader.tag();
    if (tag <= last) throw notCanonical(id);
    last = tag;
    if (tag === NAME) name = reader.text();
    else if (tag === TYPE) type = reader.text();
    else throw notCanonical(id);
  }
  return { name, type };
}

function notCanonical(id: bigint): ProtocolError {
  return new ProtocolError(`schema.canonical: ${hex(id)} has fields that are unknown, repeated or out of order`);
}
