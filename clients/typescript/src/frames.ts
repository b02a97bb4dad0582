/** Takes a publisher's frames apart before objects are made of them. */

import { type DescMessage, fromBinary } from "@bufbuild/protobuf";

import { ProtocolError } from "./errors.js";
import * as push from "./generated/wormhole/wire/v1/push_pb.js";
import { BYTES, Reader } from "./reader.js";

/** A decoded frame. */
export type FrameKind = Exclude<push.PublisherFrame["kind"], { case: undefined }>;

type Case = FrameKind["case"];

/** The kinds of frames by their field in `PublisherFrame`. */
const KINDS: readonly (readonly [Case, DescMessage] | undefined)[] = [
  undefined,
  ["hello", push.HelloSchema],
  ["assign", push.AssignSchema],
  ["schema", push.SchemaFrameSchema],
  ["batch", push.BatchSchema],
  ["part", push.PartSchema],
  ["datamarker", push.DatamarkerFrameSchema],
  ["revoke", push.RevokeSchema],
  ["heartbeat", push.HeartbeatSchema],
  ["dataLoss", push.DataLossSchema],
  ["notice", push.ShardNoticeSchema],
  ["goodbye", push.GoodbyeSchema],
  ["parked", push.ParkedSchema],
  ["chunkEnd", push.ChunkEndSchema],
  ["scanEnd", push.ScanEndSchema],
];
const PARKED = (9 << 3) | BYTES; // tag of Assign.parked

/** A frame whose message is not decoded. */
export interface RawFrame {
  readonly case: Case;
  readonly payload: Uint8Array;
  decode(): FrameKind;
}

/** The kind of a frame. Of several the last one counts. */
export function openFrame(data: Uint8Array): RawFrame {
  let found: RawFrame | undefined;
  const reader = new Reader(data);
  while (!reader.done) {
    const tag = reader.tag();
    const kind = (tag & 7) === BYTES ? KINDS[tag >>> 3] : undefined;
    if (kind === undefined) reader.skip(tag);
    else {
      const [name, schema] = kind;
      const payload = reader.bytes();
      const decode = () => ({ case: name, value: fromBinary(schema, payload) }) as FrameKind;
      found = { case: name, payload, decode };
    }
  }
  if (found === undefined) throw new ProtocolError("PublisherFrame.kind: a kind that this version does not have");
  return found;
}

/** An `Assign` without its parked rows, and these, each encoded. */
export function splitAssign(data: Uint8Array): [Uint8Array, Uint8Array[]] {
  const rest: Uint8Array[] = [];
  const parked: Uint8Array[] = [];
  const reader = new Reader(data);
  while (!reader.done) {
    const begin = reader.at;
    const tag = reader.tag();
    if (tag === PARKED) parked.push(reader.bytes());
    else {
      reader.skip(tag);
      rest.push(data.subarray(begin, reader.at));
    }
  }
  return [Buffer.concat(rest), parked];
}
