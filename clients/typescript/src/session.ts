/**
 * One stream as the subscriber sees it: frames and time in, events and frames out. No I/O, no clock.
 *
 * docs/wire.md has the protocol. What breaks it is answered with one Goodbye(PROTOCOL), which names frame and field,
 * and gives a `closed` event; later frames are ignored.
 */

import { fromBinary } from "@bufbuild/protobuf";

import type { Account } from "./budget.js";
import { type ChunkEndFrame, checkScanEnd, isConclusive, parseChunkEnd, rangeOf } from "./chunk.js";
import { Datamarker } from "./datamarker.js";
import { ProtocolError, shortened, StreamBroken } from "./errors.js";
import { StreamFlow } from "./flow.js";
import {
  type Assign,
  AssignSchema,
  DataLoss_Kind as LossKind,
  type DataLoss as LossFrame,
  Failed_Reason as FailedReason,
  Goodbye_Reason as GoodbyeReason,
  type HandlerReport,
  type Hello,
  type SchemaFrame,
  ShardNotice_Kind as NoticeKind,
  Verify,
} from "./generated/wormhole/wire/v1/push_pb.js";
import type { ChunkEnd, DataLoss, Replay } from "./handler.js";
import { Outbox } from "./outbox.js";
import { BYTES, countFields, Reader } from "./reader.js";
import { openFrame, type FrameKind, splitAssign } from "./frames.js";
import { countParkedFields, parseParkedKey, type RowKey, type UpdatePlace } from "./rowkey.js";
import { hex, parseSchema, type Schema } from "./schema.js";
import type { Update } from "./update.js";

export { FailedReason, GoodbyeReason };

const VERSION = 3;
const SILENCE = 3; // missed heartbeats after which the other side is taken for gone
const HELLO_MS = 10_000;
const REMEMBERED = 4096; // flows that ended and may still have frames on the way
const STREAM_BYTES = 128 << 10;
const FLOW_BYTES = 16 << 10;
const WAITING_BYTES = 128; // memory of a datamarker or a notice without its texts
const FIELD_BYTES = 256; // memory of a field that became an object
const COPIES = 8; // memory of texts and places as objects, in multiples of their bytes
const SCHEMA_BYTES = 1 << 10;
const LONGEST_TEXT = 1000;
const LONGEST_SHARD = 4096;
const MOST_UNREAD = 50_000; // answers that a publisher does not read
const PIECE = 1 << 20; // of a parked update's body: publishers take messages of 4 MiB
const NO_EPOCH = 1n << 63n;
const REFUSAL_CODES: Partial<Record<GoodbyeReason, string>> = {
  [GoodbyeReason.VERSION]: "protocol-broken",
  [GoodbyeReason.WRONG_ADDRESS]: "address-taken",
  [GoodbyeReason.NOT_ALLOWED]: "certificate-refused",
};
const LOSS_KINDS: Partial<Record<LossKind, DataLoss["kind"]>> = {
  [LossKind.PURGED]: "purged",
  [LossKind.NOT_LOGGED]: "not-logged",
  [LossKind.DIVERGED]: "diverged",
};

/** The publisher at the other end. `owner` is the same after its restart. */
export interface Peer {
  name: string;
  owner: string;
  dataset: string;
  log: string;
  connected: boolean;
}

/** The part of `Hello.publisher` that stays the same when the publisher restarts. */
export function withoutProcess(publisher: string): string {
  return publisher.replace(/:[^:]*$/, "");
}

/** Whether two publishers are not one and the same. */
export function differ(one: Peer, other: Peer): boolean {
  if (one === other) return false;
  return one.owner && other.owner ? one.owner !== other.owner : one.name !== other.name;
}

/** A flow that is assigned. */
export interface Assigned {
  readonly flow: number;
  readonly frame: Assign;
  readonly marker: Datamarker;
  readonly parked: readonly (readonly [RowKey, UpdatePlace])[];
}

/** What a flow receives, in order. */
export type Item =
  | { readonly kind: "batch"; number: bigint; replayed: boolean; body: Uint8Array; unfinished: boolean }
  | { readonly kind: "marker"; readonly marker: Datamarker }
  | { readonly kind: "replay"; readonly replay: Replay }
  | { readonly kind: "loss"; readonly loss: DataLoss; decided: boolean }
  | { readonly kind: "chunk-end"; readonly end: ChunkEnd; readonly conclusive: boolean }
  | { readonly kind: "scan-end"; readonly table: string; readonly rows: bigint };

export type Event =
  | { readonly kind: "welcomed" }
  | { readonly kind: "assigned"; readonly assigned: Assigned }
  | { readonly kind: "item"; readonly flow: number; readonly item: Item }
  | { readonly kind: "revoked"; readonly flow: number; readonly cause: string }
  | { readonly kind: "parked"; readonly flow: number; readonly updateId: string; readonly refused: string }
  | { readonly kind: "closed"; readonly cause: string; readonly expected: boolean };

/** Why a publisher is refused. */
export type Refusal = readonly [reason: GoodbyeReason, message: string, hint: string];

export interface SessionOptions {
  readonly application: string;
  readonly subscriber: string;
  readonly takesRanges: boolean;
  readonly maxFrame: number;
  readonly maxBody: number;
  /** Memory that stays as long as a flow or a stream. */
  readonly state: Account;
  /** Memory of bodies above their flow's credit. */
  readonly large: Account;
  readonly peer: Peer;
  /** Whether the names in the publisher's certificate permit this dataset. */
  readonly refuses: (dataset: string) => Refusal | undefined;
  /** The publisher, {@link withoutProcess}, that was connected at the address a moment ago; empty: any may answer. */
  readonly expected: string;
}

/** The epoch that this process holds. */
export interface Held {
  readonly epoch: bigint;
  readonly by: string;
  readonly contested: boolean;
}

/** `now` is milliseconds of any monotonic clock, always the same one. */
export class Session {
  readonly #flows = new Map<number, StreamFlow>();
  readonly #ofShard = new Map<string, StreamFlow>();
  readonly #gone = new Map<number, bigint>();
  readonly #schemas = new Map<bigint, Schema>();
  readonly #out = new Outbox();
  readonly #reported = new Map<number, string>();
  #heartbeatMs: number | undefined;
  #beats = 0n;
  #heard: number;
  #spoke: number;
  #reportAt: number;
  /** Frames that came too late. */
  dropped = 0;
  /** Whether the publisher ended the stream because it stops. */
  left = false;
  /** Why the publisher may not push here. */
  refused: StreamBroken | undefined;

  constructor(
    private readonly options: SessionOptions,
    now: number,
  ) {
    this.#heard = this.#spoke = this.#reportAt = now;
    options.state.charge(STREAM_BYTES, "a stream");
  }

  get peer(): Peer {
    return this.options.peer;
  }

  get closed(): boolean {
    return !this.peer.connected;
  }

  get welcomed(): boolean {
    return this.#heartbeatMs !== undefined;
  }

  get hasOutput(): boolean {
    return !this.#out.empty;
  }

  /** How long the publisher may be silent, or leave our frames unread. */
  get silenceMs(): number {
    return this.#heartbeatMs === undefined ? HELLO_MS : SILENCE * this.#heartbeatMs;
  }

  // --- in ---

  receive(data: Uint8Array, now: number): Event[] {
    if (this.closed) return [];
    this.#heard = now;
    const events: Event[] = [];
    try {
      const { maxFrame } = this.options;
      if (data.length > maxFrame) {
        throw new ProtocolError(`message of ${data.length} bytes; Welcome.max_frame_bytes was ${maxFrame}`);
      }
      if (this.#out.length > MOST_UNREAD) {
        throw new ProtocolError(`${this.#out.length} answers wait: this publisher sends, and reads nothing`);
      }
      const reader = new Reader(data);
      for (let frame = nextFrame(reader); frame !== undefined; frame = nextFrame(reader)) {
        this.#frame(frame, events);
        if (events.at(-1)?.kind === "closed") break;
      }
    } catch (error) {
      events.push(this.refuse(error instanceof ProtocolError ? error : new ProtocolError(`message: ${String(error)}`)));
    }
    return events;
  }

  /** Time passed: heartbeats, and a publisher that is gone. Call it at {@link deadline}. */
  tick(now: number): Event[] {
    if (this.closed) return [];
    const heartbeatMs = this.#heartbeatMs;
    if (now - this.#heard >= this.silenceMs) {
      if (heartbeatMs === undefined) return [this.refuse(new ProtocolError(`no Hello within ${HELLO_MS} ms`))];
      return [this.#close(`nothing heard from the publisher for ${Math.round(now - this.#heard)} ms`)];
    }
    if (heartbeatMs !== undefined && now - this.#spoke >= heartbeatMs) {
      this.#out.add({ case: "heartbeat", value: { number: ++this.#beats } });
      this.#spoke = now;
    }
    return [];
  }

  /** When {@link tick} has to be called next. */
  get deadline(): number {
    const silent = this.#heard + this.silenceMs;
    if (this.#heartbeatMs === undefined) return silent;
    return Math.min(silent, this.#spoke + this.#heartbeatMs, this.#reportAt);
  }

  /** Whether flows should {@link report}: about once a heartbeat. */
  reportDue(now: number): boolean {
    if (this.#heartbeatMs === undefined || now < this.#reportAt || this.closed) return false;
    this.#reportAt = now + this.#heartbeatMs;
    return true;
  }

  /** A schema that arrived on this stream. Throws a `ProtocolError` if none did. */
  schema(id: bigint): Schema {
    const schema = this.#schemas.get(id);
    if (schema === undefined) {
      throw new ProtocolError(`batch.body.schema_ids: ${hex(id)} was not sent on this stream`);
    }
    return schema;
  }

  #frame(data: Uint8Array, events: Event[]): void {
    const { state } = this.options;
    const frame = openFrame(data);
    if (frame.case === "chunkEnd") {
      this.#afterHello("chunk_end");
      this.#chunkEnd(parseChunkEnd(frame.payload), events); return;
    }
    if (frame.case !== "assign") return this.#dispatch(frame.decode(), data.buffer.byteLength, events);
    this.#afterHello("assign");
    // What its lists become is many times their bytes: there has to be room before they are read.
    const room = FIELD_BYTES * countFields(frame.payload);
    state.charge(room, "an assignment");
    const [assign, rows] = splitAssign(frame.payload);
    const more = FIELD_BYTES * rows.reduce((sum, row) => sum + countParkedFields(row), 0);
    state.charge(more, "an assignment");
    this.#assign(fromBinary(AssignSchema, assign), rows.map(parseParkedKey), events);
    state.release(room + more);
  }

  #dispatch(kind: FrameKind, message: number, events: Event[]): void {
    if (kind.case === "hello") return this.#hello(kind.value, events);
    this.#afterHello(kind.case);
    switch (kind.case) {
      case "schema":
        return this.#learn(kind.value);
      case "goodbye": {
        const { reason, message } = kind.value;
        const cause = `publisher said goodbye (${GoodbyeReason[reason]}) ${shortened(message)}`;
        this.left = reason === GoodbyeReason.LEAVING;
        events.push(this.#close(cause, this.left));
        return;
      }
      case "heartbeat":
      case "assign":
      case "chunkEnd":
        return; // a heartbeat only shows that the publisher is alive; the others are read in their own ways
      default: {
        const flow = this.#flow(kind.case, kind.value.flow, kind.value.epoch);
        if (flow !== undefined) this.#flowFrame(flow, kind, message, events);
      }
    }
  }

  #flowFrame(flow: StreamFlow, kind: FrameKind, message: number, events: Event[]): void {
    const item = (found: Item) => events.push({ kind: "item", flow: flow.number, item: found });
    switch (kind.case) {
      case "batch": {
        const { number, replayed, unfinished } = kind.value;
        let body = flow.batch(kind.value);
        if (!this.#admits(flow)) return;
        // A view would keep the whole message, which may be far larger than what the credit counts.
        if (2 * body.length < message) body = body.slice();
        item({ kind: "batch", number, replayed, body, unfinished });
        return;
      }
      case "part": {
        const { number, replayed, unfinished } = kind.value;
        const body = flow.part(kind.value, () => this.#admits(flow));
        if (body !== undefined) item({ kind: "batch", number, replayed, body, unfinished });
        return;
      }
      case "datamarker": {
        flow.between("datamarker");
        const marker = markerOf("datamarker.marker", kind.value.marker);
        this.#keep(flow, marker.toBytes().length, marker);
        item({ kind: "marker", marker });
        return;
      }
      case "notice":
        flow.between("notice");
        this.#keep(flow, 0);
        item({ kind: "replay", replay: replayOf(kind.value.kind, kind.value.latest) });
        return;
      case "dataLoss":
        item(this.#dataLoss(flow, kind.value));
        return;
      case "scanEnd":
        flow.betweenTransactions("scan_end");
        checkScanEnd(kind.value, flow.generation);
        this.#keep(flow, kind.value.table.length);
        item({ kind: "scan-end", table: kind.value.table, rows: kind.value.rows });
        return;
      case "parked": {
        const { updateId, refused } = kind.value;
        events.push({ kind: "parked", flow: flow.number, updateId, refused: shortened(refused) });
        return;
      }
      case "revoke":
        flow.close("revoked");
        events.push({ kind: "revoked", flow: flow.number, cause: shortened(kind.value.cause) });
    }
  }

  #hello(hello: Hello, events: Event[]): void {
    if (this.welcomed) throw new ProtocolError("hello: a second one");
    for (const name of ["publisher", "dataset", "copy", "log", "application", "subscriber", "owner"] as const) {
      checkLength(`hello.${name}`, hello[name], LONGEST_TEXT);
    }
    if (hello.publisher) this.peer.name = hello.publisher;
    Object.assign(this.peer, { owner: hello.owner, dataset: hello.dataset, log: hello.log });
    const refusal = this.#refusal(hello);
    if (refusal !== undefined) {
      const [reason, message, hint] = refusal;
      this.goodbye(reason, message, hint);
      this.refused = new StreamBroken(message, REFUSAL_CODES[reason], hint);
      events.push(this.#close(`refused: ${message}`));
      return;
    }
    if (!hello.heartbeatMs) throw new ProtocolError("hello.heartbeat_ms: 0");
    this.#heartbeatMs = hello.heartbeatMs;
    this.#reportAt = this.#heard + hello.heartbeatMs;
    const { application, subscriber, maxFrame, takesRanges } = this.options;
    const value = { version: VERSION, application, subscriber, maxFrameBytes: maxFrame, takesRanges };
    this.#out.add({ case: "welcome", value });
    events.push({ kind: "welcomed" });
  }

  #refusal(hello: Hello): Refusal | undefined {
    const { application, subscriber, expected } = this.options;
    if (hello.minVersion > VERSION || hello.maxVersion < VERSION) {
      const [older, own] = [hello.maxVersion < VERSION ? "publisher" : "subscriber", `${VERSION} to ${VERSION}`];
      const message = `publisher ${hello.publisher || "(unnamed)"} speaks protocol versions ${hello.minVersion} to ` +
        `${hello.maxVersion}, subscriber ${application}/${subscriber} ${own}: they have none in common`;
      return [GoodbyeReason.VERSION, message, `upgrade the ${older}, the older side, first`];
    }
    if (hello.application !== application || (hello.subscriber && hello.subscriber !== subscriber)) {
      const message = `${hello.application}/${hello.subscriber} was meant, this is ${application}/${subscriber}`;
      return [GoodbyeReason.WRONG_ADDRESS, message, "look for an address in `dial` that is another installation's"];
    }
    if (expected && withoutProcess(hello.publisher) !== expected) {
      const message = `publisher ${hello.publisher} answers at the address where ${expected} was connected a moment ` +
        "ago: several publishers are behind it, and of these only one would be connected";
      const hint = "dial each publisher at an address of its own (docs/dialling.md); one that takes the place of " +
        "another is accepted after half a minute";
      return [GoodbyeReason.WRONG_ADDRESS, message, hint];
    }
    return this.options.refuses(hello.dataset);
  }

  #learn(frame: SchemaFrame): void {
    if (this.#schemas.has(frame.id)) return;
    const { canonical } = frame;
    const cost = SCHEMA_BYTES + COPIES * canonical.length;
    this.options.state.charge(cost, `schema ${hex(frame.id)}`);
    this.#schemas.set(frame.id, parseSchema(frame.id, canonical));
  }

  #assign(assign: Assign, parked: Assigned["parked"], events: Event[]): void {
    const { application, state, maxBody } = this.options;
    const { flow: number, epoch, shard, generation } = assign;
    if (assign.application !== application) {
      throw new ProtocolError(`assign.application: ${shortened(assign.application)} on a stream of ${application}`);
    }
    if (!shard) throw new ProtocolError("assign.shard: empty");
    checkLength("assign.shard", shard, LONGEST_SHARD);
    checkLength("assign.rolled_back", assign.rolledBack, LONGEST_TEXT);
    if (epoch + 1n >= NO_EPOCH) throw new ProtocolError(`assign.epoch: ${epoch}; epochs are below 2^63`);
    if (assign.verify !== Verify.NONE) {
      throw new ProtocolError(`assign.verify: ${assign.verify}; this subscriber does not verify`);
    }
    const marker = markerOf("assign.marker", assign.marker);
    const old = this.#flows.get(number);
    if (old !== undefined) {
      if (old.shard !== shard) throw new ProtocolError(`assign.flow: ${number} is in use for shard ${old.shard}`);
      if (old.epoch >= epoch) {
        throw new ProtocolError(`assign.epoch: ${epoch} for flow ${number}, which has ${old.epoch}`);
      }
      this.#forget(old);
    }
    const former = this.#ofShard.get(shard);
    if (former?.phase === "failed") this.#forget(former); // it is never revoked under its former number
    const flow = new StreamFlow(number, epoch, shard, generation, maxBody);
    const rows = parked.reduce((sum, [row]) => sum + row.values.reduce((size, value) => size + value.length, 0), 0);
    const skip = assign.skip.reduce((sum, id) => sum + id.length, 0);
    const lists = COPIES * (shard.length + rows + skip + marker.toBytes().length);
    flow.kept = FLOW_BYTES + lists + FIELD_BYTES * (parked.length + assign.skip.length);
    state.charge(flow.kept, `shard ${shortened(shard)}`);
    this.#flows.set(number, flow);
    this.#ofShard.set(shard, flow);
    events.push({ kind: "assigned", assigned: { flow: number, frame: assign, marker, parked } });
  }

  #dataLoss(flow: StreamFlow, frame: LossFrame): Item {
    flow.between("data_loss");
    if (flow.deciding) throw new ProtocolError("data_loss.flow: another one is not decided yet");
    const kind = LOSS_KINDS[frame.kind];
    if (kind === undefined) throw new ProtocolError(`data_loss.kind: ${frame.kind} is not known`);
    flow.deciding = true;
    const { firstMissing, lastMissing, message } = frame;
    const resume = frame.resume && markerOf("data_loss.resume", frame.resume);
    this.#keep(flow, firstMissing.length + lastMissing.length + message.length + (resume?.toBytes().length ?? 0));
    return { kind: "loss", loss: { kind, firstMissing, lastMissing, resume, message }, decided: false };
  }

  #chunkEnd(frame: ChunkEndFrame, events: Event[]): void {
    const flow = this.#flow("chunk_end", frame.flow, frame.epoch);
    if (flow === undefined) return;
    flow.betweenTransactions("chunk_end");
    const end = rangeOf(frame, this.#schemas.get(frame.schema), flow.generation);
    this.#keep(flow, COPIES * frame.size + FIELD_BYTES * (frame.except.length + frame.alone.length));
    const item: Item = { kind: "chunk-end", end, conclusive: isConclusive(frame) };
    events.push({ kind: "item", flow: flow.number, item });
  }

  /** The flow of a frame; `undefined` if the frame came too late. */
  #flow(kind: string, number: number, epoch: bigint): StreamFlow | undefined {
    const flow = this.#flows.get(number);
    const newest = flow?.epoch ?? this.#gone.get(number);
    if (newest === undefined) throw new ProtocolError(`${kind}.flow: ${number} was never assigned on this stream`);
    if (epoch > newest) {
      throw new ProtocolError(`${kind}.epoch: ${epoch} of flow ${number}, which was assigned in epoch ${newest}`);
    }
    const late = flow === undefined || epoch < newest || flow.phase === "revoked";
    if (!late && (flow.phase !== "failed" || kind === "revoke")) return flow;
    this.dropped++;
    return undefined;
  }

  /** Whether there is room for a body beyond its flow's credit. If not, it has to be sent again. */
  #admits(flow: StreamFlow): boolean {
    const more = flow.excess - flow.excessCharged;
    if (more <= 0) return true;
    try {
      this.options.large.charge(more, `a batch of ${flow.inFlight} bytes`);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.fail(flow.number, FailedReason.RESEND, "", error.message);
      return false;
    }
    flow.excessCharged = flow.excess;
    return true;
  }

  #keep(flow: StreamFlow, size: number, marker?: Datamarker): void {
    const cost = WAITING_BYTES + 2 * size;
    this.options.state.charge(cost, `what waits for shard ${shortened(flow.shard)}`);
    flow.keep(cost, marker);
  }

  #afterHello(kind: string): void {
    if (!this.welcomed) throw new ProtocolError(`${kind}: the first frame of a stream is hello`);
  }

  // --- out ---

  /** Whether the stream still has this epoch of a flow. */
  has(number: number, epoch: bigint): boolean {
    return !this.closed && this.#flows.get(number)?.epoch === epoch;
  }

  accept(number: number, credit: number, have: Datamarker | undefined, move: bigint): void {
    const flow = this.#at(number);
    if (flow.phase !== "assigned") return;
    flow.phase = "open";
    flow.credit = credit;
    const value = { flow: number, epoch: flow.epoch, credit: BigInt(credit), move };
    this.#out.add({ case: "accepted", value: have === undefined ? value : { ...value, have: have.message } });
  }

  progress(number: number, batch: bigint): void {
    const flow = this.#at(number);
    flow.progress(batch);
    if (!flow.excess) {
      this.options.large.release(flow.excessCharged);
      flow.excessCharged = 0;
    }
    this.#out.progress(flow);
  }

  ack(number: number, marker: Datamarker): void {
    const flow = this.#at(number);
    this.options.state.release(flow.acknowledged(marker));
    this.#out.ack(flow, marker);
  }

  release(number: number, marker: Datamarker | undefined): void {
    const flow = this.#at(number);
    this.#out.flush(flow);
    const value = { flow: number, epoch: flow.epoch };
    this.#out.add({ case: "released", value: marker === undefined ? value : { ...value, marker: marker.message } });
    this.#forget(flow);
  }

  /** The flow cannot continue here. It stays known, so that the publisher may revoke it. */
  fail(number: number, reason: FailedReason, updateId: string, message: string, held?: Held): void {
    const flow = this.#at(number);
    this.#out.flush(flow);
    const about = held && { heldEpoch: held.epoch, heldBy: held.by, contested: held.contested };
    const value = { flow: number, epoch: flow.epoch, reason, updateId, message: shortened(message), ...about };
    this.#out.add({ case: "failed", value });
    if (flow.phase !== "revoked") flow.close("failed");
  }

  /** Has an update stored by the publisher, which answers with `Parked`. */
  park(number: number, update: Update, place: UpdatePlace, error: string): void {
    const flow = this.#at(number);
    const { epoch } = flow;
    const updateId = update.id;
    this.#out.flush(flow);
    const body = update.encoded();
    for (let begin = 0; begin < body.length; begin += PIECE) {
      const more = begin + PIECE < body.length;
      const piece = { flow: number, epoch, updateId, body: body.subarray(begin, begin + PIECE), more };
      const last = { schema: update.schema.canonical, place, error: shortened(error) };
      this.#out.add({ case: "park", value: more ? piece : { ...piece, ...last } });
    }
  }

  /** Reports on a flow's callbacks. Nothing is sent if nothing changed. */
  report(number: number, handler: Omit<HandlerReport, "$typeName">): void {
    const { epoch } = this.#at(number);
    const shown = Object.values(handler).map(String).join();
    if (this.#reported.get(number) === shown) return;
    this.#reported.set(number, shown);
    this.#out.add({ case: "report", value: { flow: number, epoch, handler } });
  }

  decideLoss(number: number, proceed: boolean): void {
    const flow = this.#at(number);
    flow.deciding = false;
    this.#out.flush(flow);
    this.#out.add({ case: "lossDecision", value: { flow: number, epoch: flow.epoch, proceed } });
  }

  /** The last frame of the stream. */
  goodbye(reason: GoodbyeReason, message: string, hint = ""): void {
    this.#out.flushAll();
    this.#out.add({ case: "goodbye", value: { reason, message: shortened(message), hint: shortened(hint) } });
    this.peer.connected = false;
  }

  /** The publisher broke the protocol: ends the stream. */
  refuse(error: ProtocolError): Event {
    const hint = error.hint || "compare the releases on both sides; docs/wire.md describes the publisher's frames";
    this.goodbye(GoodbyeReason.PROTOCOL, error.message, hint);
    return this.#close(error.message);
  }

  /** The stream is over: gives its memory back. */
  end(): void {
    this.peer.connected = false;
    this.options.state.close();
    this.options.large.close();
  }

  /** The waiting frames as one message; call it again for more. */
  takeOutput(now: number): Buffer | undefined {
    const data = this.#out.take();
    if (data !== undefined) this.#spoke = now;
    return data;
  }

  #at(number: number): StreamFlow {
    const flow = this.#flows.get(number);
    if (flow === undefined) throw new Error(`flow ${number} is not on this stream`);
    return flow;
  }

  /** Nothing more is sent for the flow, and its late frames are dropped. */
  #forget(flow: StreamFlow): void {
    this.#flows.delete(flow.number);
    this.#reported.delete(flow.number);
    this.options.state.release(flow.kept);
    this.options.large.release(flow.excessCharged);
    if (this.#ofShard.get(flow.shard) === flow) this.#ofShard.delete(flow.shard);
    this.#out.forget(flow);
    this.#gone.delete(flow.number);
    this.#gone.set(flow.number, flow.epoch);
    const [oldest] = this.#gone.keys();
    if (this.#gone.size > REMEMBERED && oldest !== undefined) this.#gone.delete(oldest);
  }

  #close(cause: string, expected = false): Event {
    this.peer.connected = false;
    return { kind: "closed", cause, expected };
  }
}

function markerOf(where: string, message: ConstructorParameters<typeof Datamarker>[0] | undefined): Datamarker {
  if (message === undefined) throw new ProtocolError(`${where}: order is missing`);
  return new Datamarker(message, where);
}

function replayOf(kind: NoticeKind, latest: boolean): Replay {
  if (kind === NoticeKind.REPLAY_BEGIN) return { kind: "begin", latest };
  if (kind === NoticeKind.REPLAY_END) return { kind: "end" };
  throw new ProtocolError(`notice.kind: ${kind} is neither REPLAY_BEGIN nor REPLAY_END`);
}

function checkLength(where: string, text: string, most: number): void {
  if (text.length <= most || [...text].length <= most) return;
  throw new ProtocolError(`${where}: longer than ${most} characters`);
}

/** The bytes of the next frame in a message. */
function nextFrame(reader: Reader): Uint8Array | undefined {
  try {
    while (!reader.done) {
      const tag = reader.tag();
      if (tag === ((1 << 3) | BYTES)) return reader.bytes();
      reader.skip(tag);
    }
    return undefined;
  } catch (error) {
    throw new ProtocolError(`PublisherMessage: no valid message: ${String(error)}`);
  }
}
