/**
 * The frames that wait to be sent on one stream, in order. Of several acknowledgements and progresses of one flow only
 * the newest waits, the acknowledgement first.
 */

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { sizeDelimitedEncode } from "@bufbuild/protobuf/wire";

import type { Datamarker } from "./datamarker.js";
import type { StreamFlow } from "./flow.js";
import { SubscriberFrameSchema } from "./generated/wormhole/wire/v1/push_pb.js";

type Kind = NonNullable<MessageInitShape<typeof SubscriberFrameSchema>["kind"]>;

const MOST_BYTES = 2 << 20; // publishers take 4 MiB
const MOST_FRAMES = 4096; // publishers take 65,536
const FRAMES_TAG = Buffer.from([0x0a]);

export class Outbox {
  #frames: Uint8Array[] = [];
  readonly #pending = new Map<StreamFlow, { marker?: Datamarker; progressed: boolean }>();

  /** Frames that wait, without pending answers. */
  get length(): number {
    return this.#frames.length;
  }

  get empty(): boolean {
    return !this.#frames.length && !this.#pending.size;
  }

  add(kind: Kind): void {
    const frame = create(SubscriberFrameSchema, { kind });
    this.#frames.push(sizeDelimitedEncode(SubscriberFrameSchema, frame));
  }

  /** Batches up to `flow.progressed` are processed. */
  progress(flow: StreamFlow): void {
    this.#of(flow).progressed = true;
  }

  ack(flow: StreamFlow, marker: Datamarker): void {
    this.#of(flow).marker = marker;
  }

  /** Puts the pending answers of a flow before the next frame. */
  flush(flow: StreamFlow): void {
    const pending = this.#pending.get(flow);
    if (pending === undefined) return;
    this.#pending.delete(flow);
    const { number, epoch, progressed } = flow;
    if (pending.marker) {
      this.add({ case: "ack", value: { flow: number, epoch, marker: pending.marker.message } });
    }
    if (pending.progressed) this.add({ case: "progress", value: { flow: number, epoch, number: progressed } });
  }

  flushAll(): void {
    for (const flow of [...this.#pending.keys()]) this.flush(flow);
  }

  forget(flow: StreamFlow): void {
    this.#pending.delete(flow);
  }

  /** The waiting frames as one message, of which a very long one is cut; `undefined` if none waits. */
  take(): Buffer | undefined {
    this.flushAll();
    if (!this.#frames.length) return undefined;
    let count = 0;
    let size = 0;
    for (const frame of this.#frames) {
      size += frame.length;
      if (count && (size > MOST_BYTES || count === MOST_FRAMES)) break;
      count++;
    }
    return Buffer.concat(this.#frames.splice(0, count).flatMap((frame) => [FRAMES_TAG, frame]));
  }

  #of(flow: StreamFlow): { marker?: Datamarker; progressed: boolean } {
    let pending = this.#pending.get(flow);
    if (pending === undefined) this.#pending.set(flow, (pending = { progressed: false }));
    return pending;
  }
}

