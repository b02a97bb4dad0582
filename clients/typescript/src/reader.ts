/**
 * Reads the protobuf fields of bytes that a peer sent, each of which may be wrong.
 *
 * The generated code makes an object of every field, and a publisher's two bytes may become fifty. So whatever occurs
 * in large numbers (frames, updates, values) is read here.
 */

import { ProtocolError } from "./errors.js";

export const VARINT = 0;
export const FIXED64 = 1;
export const BYTES = 2;
export const FIXED32 = 5;

const LONGEST_VARINT = 10;
const TWO_32 = 0x1_0000_0000;

// A byte order mark at the begin of a text belongs to the text.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const SHORT = 24;

export class Reader {
  /** Upper half of the last number that `#number` read. */
  #high = 0;

  constructor(
    readonly data: Uint8Array,
    public at = 0,
    readonly end = data.length,
  ) {}

  get done(): boolean {
    return this.at >= this.end;
  }

  /** The next field's tag: number and wire type. */
  tag(): number {
    const low = this.#number();
    if (this.#high !== 0 || low < 8) throw new ProtocolError("a field has a number that none has");
    return low;
  }

  /** A number of at most 32 bits; those above are ignored, as protobuf requires. */
  uint32(): number {
    return this.#number();
  }

  /** A number that is not `false`. */
  bool(): boolean {
    return (this.#number() | this.#high) !== 0;
  }

  uint64(): bigint {
    const low = this.#number();
    const high = this.#high;
    return high < 0x20_0000 ? BigInt(high * TWO_32 + low) : (BigInt(high) << 32n) | BigInt(low);
  }

  /** A signed number in zigzag form. */
  sint64(): bigint {
    const low = this.#number();
    const high = this.#high;
    if (high < 0x20_0000) {
      const number = high * TWO_32 + low;
      return BigInt(low & 1 ? -(number + 1) / 2 : number / 2);
    }
    const number = (BigInt(high) << 32n) | BigInt(low);
    return (number >> 1n) ^ -(number & 1n);
  }

  fixed64(): bigint {
    const view = this.#view(8);
    return view.getBigUint64(0, true);
  }

  double(): number {
    return this.#view(8).getFloat64(0, true);
  }

  /** The end of the bytes whose length comes next; the position is at their begin. */
  span(): number {
    const length = this.#number();
    if (this.#high !== 0 || length > this.end - this.at) {
      throw new ProtocolError(`a field has ${length} bytes where ${this.end - this.at} are left`);
    }
    return this.at + length;
  }

  /** A view of the bytes whose length comes next. */
  bytes(): Uint8Array {
    const end = this.span();
    const found = this.data.subarray(this.at, end);
    this.at = end;
    return found;
  }

  text(): string {
    const end = this.span();
    const text = textOf(this.data, this.at, end);
    this.at = end;
    return text;
  }

  /** Passes over the value of a field with this tag. */
  skip(tag: number): void {
    switch (tag & 7) {
      case VARINT:
        this.#number();
        return;
      case FIXED64:
        this.#view(8);
        return;
      case BYTES:
        this.at = this.span();
        return;
      case FIXED32:
        this.#view(4);
        return;
      default:
        // Groups are not used by any message of the protocol.
        throw new ProtocolError(`field ${tag >>> 3} has the wire type ${tag & 7}`);
    }
  }

  #number(): number {
    const data = this.data;
    let at = this.at;
    if (at < this.end) {
      const byte = data[at] as number;
      if (byte < 0x80) {
        this.at = at + 1;
        this.#high = 0;
        return byte;
      }
    }
    const most = at + LONGEST_VARINT;
    let low = 0;
    let high = 0;
    for (let shift = 0; at < this.end && at < most; shift += 7) {
      const byte = data[at++] as number;
      const part = byte & 0x7f;
      if (shift < 28) low |= part << shift;
      else if (shift === 28) {
        low |= part << 28;
        high = part >>> 4;
      } else if (shift < 64) high |= part << (shift - 32);
      if (byte < 0x80) {
        this.at = at;
        this.#high = high >>> 0;
        return low >>> 0;
      }
    }
    throw new ProtocolError(at === most ? "a number has more than ten bytes" : "it breaks off in a number");
  }

  #view(size: number): DataView {
    if (size > this.end - this.at) throw new ProtocolError("it breaks off in a number");
    const view = new DataView(this.data.buffer, this.data.byteOffset + this.at, size);
    this.at += size;
    return view;
  }
}

/** The text in `data[begin:end]`, which has to be UTF-8. */
export function textOf(data: Uint8Array, begin: number, end: number): string {
  if (end - begin <= SHORT) {
    // Most texts are short and ASCII; a call of the decoder costs more than these.
    let text = "";
    for (let at = begin; at < end; at++) {
      const byte = data[at] as number;
      if (byte >= 0x80) return decoded(data, begin, end);
      text += String.fromCharCode(byte);
    }
    return text;
  }
  return decoded(data, begin, end);
}

function decoded(data: Uint8Array, begin: number, end: number): string {
  try {
    return utf8.decode(data.subarray(begin, end));
  } catch {
    throw new ProtocolError("a text is not UTF-8");
  }
}

/** The number of top-level fields in a message, and a limit of what parsing it may make. */
export function countFields(data: Uint8Array): number {
  const reader = new Reader(data);
  let fields = 0;
  for (; !reader.done; fields++) reader.skip(reader.tag());
  return fields;
}
