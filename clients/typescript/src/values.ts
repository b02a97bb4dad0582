/** Values of keys and columns, exactly as the log has them. */

import { BYTES, FIXED64, Reader, VARINT } from "./reader.js";
import { ProtocolError } from "./errors.js";

/** The log does not have this value. It is not the same as `null`, which is SQL's NULL. */
export const UNAVAILABLE: unique symbol = Symbol("wormhole.unavailable");

/** An exact decimal number, NaN or an infinity: the text that the log has, of which no digit is lost. */
export class Decimal {
  constructor(readonly text: string) {
    if (FINITE.test(text) || NOT_FINITE.test(text)) return;
    throw new ProtocolError(`row: ${JSON.stringify(text.slice(0, 60))} is no decimal number`);
  }

  /** Whether both are the same: `1.0` equals `1.00`, and NaN itself. */
  equals(other: Decimal): boolean {
    return this.text === other.text || canonical(this.text) === canonical(other.text);
  }

  /** The nearest floating-point number, which may be another number. */
  toNumber(): number {
    return Number(this.text);
  }

  toString(): string {
    return this.text;
  }

  toJSON(): string {
    return this.text;
  }
}

/** The wide columns of a RocksDB value: names and contents, both bytes, in the order of the log. */
export type Entries = readonly (readonly [name: Uint8Array, content: Uint8Array])[];

/**
 * A value: `Uint8Array` for `bytes`, `string` for `text` and `hash`, `bigint` for `int` and `uint`, `number` for
 * `double`, `boolean`, {@link Decimal}, {@link Entries}, SQL's `null`, or {@link UNAVAILABLE}. Dates and times are
 * text.
 */
export type Value = Uint8Array | string | bigint | number | boolean | Decimal | Entries | null | typeof UNAVAILABLE;

const FINITE = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?$/;
const NOT_FINITE = /^[+-]?(?:inf(?:inity)?|s?nan\d*)$/i;
/** The wire type of each kind but entries. */
const TYPES = [-1, BYTES, BYTES, VARINT, VARINT, FIXED64, VARINT, BYTES, VARINT, VARINT];

/** The value in `data[begin:end]`, the bytes of a `wormhole.wire.v1.Value`. Of several kinds the last one counts. */
export function valueOf(data: Uint8Array, begin: number, end: number): Value {
  const reader = new Reader(data, begin, end);
  let value: Value = UNAVAILABLE;
  while (!reader.done) {
    const tag = reader.tag();
    const kind = tag >>> 3;
    if (kind === 10 && (tag & 7) === BYTES) {
      value = [...(Array.isArray(value) ? (value as Entries) : []), ...entriesOf(reader)];
    } else if (TYPES[kind] === (tag & 7)) {
      value = scalarOf(reader, kind);
    } else reader.skip(tag);
  }
  return value;
}

function scalarOf(reader: Reader, kind: number): Value {
  switch (kind) {
    case 1:
      return reader.bytes().slice(); // a view would keep the whole batch in memory
    case 2:
      return reader.text();
    case 3:
      return reader.sint64();
    case 4:
      return reader.uint64();
    case 5:
      return reader.double();
    case 6:
      return reader.bool();
    case 7:
      return new Decimal(reader.text());
    case 8:
      reader.bool();
      return null;
    default:
      reader.bool();
      return UNAVAILABLE;
  }
}

function entriesOf(reader: Reader): [Uint8Array, Uint8Array][] {
  const names: Uint8Array[] = [];
  const contents: Uint8Array[] = [];
  const fields = new Reader(reader.bytes());
  while (!fields.done) {
    const tag = fields.tag();
    if (tag === ((1 << 3) | BYTES)) names.push(fields.bytes().slice());
    else if (tag === ((2 << 3) | BYTES)) contents.push(fields.bytes().slice());
    else fields.skip(tag);
  }
  if (names.length !== contents.length) {
    throw new ProtocolError(`row: entries has ${names.length} names for ${contents.length} values`);
  }
  return names.map((name, i) => [name, contents[i] as Uint8Array]);
}

/** Sign, digits without leading and trailing zeros, and exponent. */
function canonical(text: string): string {
  if (!FINITE.test(text)) return text.toLowerCase();
  const [, sign, whole = "", fraction = "", exponent = "0"] =
    /^([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
  const digits = (whole + fraction).replace(/^0+/, "");
  const significant = digits.replace(/0+$/, "");
  if (!significant) return "0";
  const power = Number(exponent) - fraction.length + digits.length - significant.length;
  return `${sign === "-" ? "-" : ""}${significant}e${power}`;
}
