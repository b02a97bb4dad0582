/** A publisher's side of a stream without a network, and what it sends. */

import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { createHash } from "node:crypto";

import { Connection } from "../src/connection.js";
import {
  type Assign,
  AssignSchema,
  type DatamarkerSchema,
  PublisherMessageSchema,
  type PublisherFrameSchema,
  type SubscriberFrame,
  SubscriberMessageSchema,
} from "../src/generated/wormhole/wire/v1/push_pb.js";
import { SchemaSchema } from "../src/generated/wormhole/wire/v1/schema_pb.js";
import { BatchBodySchema, Op, UpdateSchema, type ValueSchema } from "../src/generated/wormhole/wire/v1/update_pb.js";
import type { Handler } from "../src/handler.js";
import { type SubscriberOptions, settingsOf } from "../src/options.js";
import { Shards } from "../src/shards.js";

export type Frame = NonNullable<MessageInitShape<typeof PublisherFrameSchema>["kind"]>;
export type Answer = Exclude<SubscriberFrame["kind"], { case: undefined }>;
type AnswerOf<Case extends Answer["case"]> = Extract<Answer, { case: Case }>["value"];
type Value = MessageInitShape<typeof ValueSchema>;

const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };

export function settings(options: Partial<SubscriberOptions> = {}): ReturnType<typeof settingsOf> {
  const handler = { onUpdate: () => undefined };
  const retry = { firstWaitMs: 0, attempts: 3 };
  const own = { application: "app", id: "s1", dial: ["127.0.0.1:1"], handler, logger: silent, retry };
  return settingsOf({ ...own, ...options });
}

/** A stream: what is sent goes to a connection, whose answers are awaited. */
export class Publisher {
  readonly connection: Connection;
  readonly answers: Answer[] = [];
  #answered: () => void = () => undefined;
  #seen = 0;

  constructor(
    options: Partial<SubscriberOptions> = {},
    readonly shards = new Shards(settings(options)),
  ) {
    const output = (): void => this.#take();
    this.connection = new Connection("test", settings(options), this.shards, output, () => undefined, "");
  }

  send(...frames: Frame[]): void {
    this.connection.receive(encode(...frames));
  }

  /** The next answer of this kind, past all others. */
  async answer<Case extends Answer["case"]>(kind: Case): Promise<AnswerOf<Case>> {
    for (;;) {
      const answer = this.answers[this.#seen];
      if (answer === undefined) await new Promise<void>((resolve) => (this.#answered = resolve));
      else {
        this.#seen++;
        if (answer.case === kind) return answer.value as unknown as AnswerOf<Case>;
      }
    }
  }

  #take(): void {
    for (let data = this.connection.takeOutput(); data; data = this.connection.takeOutput()) {
      for (const { kind } of fromBinary(SubscriberMessageSchema, data).frames) {
        if (kind.case !== undefined) this.answers.push(kind);
      }
    }
    this.#answered();
  }
}

export function encode(...frames: Frame[]): Uint8Array {
  return toBinary(PublisherMessageSchema, create(PublisherMessageSchema, { frames: frames.map((kind) => ({ kind })) }));
}

export const hello: Frame = {
  case: "hello",
  value: { minVersion: 3, maxVersion: 3, publisher: "p1", owner: "o1", application: "app", heartbeatMs: 3000 },
};

export function markerAt(offset: number): MessageInitShape<typeof DatamarkerSchema> {
  return { order: { incarnation: 1, file: 1n, offset: BigInt(offset) }, delivered: String(offset) };
}

export function assign(more: Omit<Partial<Assign>, "$typeName" | "$unknown"> = {}): Frame {
  const value = create(AssignSchema, { flow: 1, epoch: 1n, application: "app", shard: "s", marker: markerAt(0) });
  return { case: "assign", value: Object.assign(value, more) };
}

export function marker(offset: number, epoch = 1n): Frame {
  return { case: "datamarker", value: { flow: 1, epoch, marker: markerAt(offset) } };
}

export function revoke(epoch = 1n): Frame {
  return { case: "revoke", value: { flow: 1, epoch, cause: "moved" } };
}

const canonical = toBinary(
  SchemaSchema,
  create(SchemaSchema, {
    table: "users",
    key: [{ name: "id", type: "int" }],
    columns: [{ name: "name", type: "text" }],
  }),
);
export const schemaId = createHash("sha256").update(canonical).digest().readBigUInt64BE(0);
export const schema: Frame = { case: "schema", value: { id: schemaId, canonical } };

export function int(value: number): Value {
  return { kind: { case: "int", value: BigInt(value) } };
}

export function text(value: string): Value {
  return { kind: { case: "text", value } };
}

/** An update of the row `id`. */
export function row(id: number, name = `name ${id}`, op = Op.UPSERT): Uint8Array {
  return toBinary(UpdateSchema, create(UpdateSchema, { op, key: [int(id)], after: [text(name)] }));
}

/** A body with one transaction, number `tx`, of these rows. `ends`: whether it ends here. */
export function body(tx: number, rows: readonly number[], { ends = true, firstIndex = 0 } = {}): Uint8Array {
  return toBinary(
    BatchBodySchema,
    create(BatchBodySchema, {
      updates: rows.map((id) => row(id)),
      schemaIds: [schemaId],
      firstIndex,
      sources: ["db1"],
      txNumber: [BigInt(tx)],
      incarnation: 1,
      txFile: [1n],
      txOffset: [BigInt(tx)],
      txCommittedAtUs: [0n],
      txEnd: ends ? [rows.length] : [],
    }),
  );
}

export function batch(number: number, data: Uint8Array, more: { epoch?: bigint; unfinished?: boolean } = {}): Frame {
  return { case: "batch", value: { flow: 1, epoch: 1n, number: BigInt(number), body: data, ...more } };
}

/** A stream whose flow 1 was accepted. */
export async function opened(
  handler: Handler,
  options: Partial<SubscriberOptions> = {},
  more: Parameters<typeof assign>[0] = {},
): Promise<Publisher> {
  const publisher = new Publisher({ handler, ...options });
  publisher.send(hello, schema, assign(more));
  await publisher.answer("accepted");
  return publisher;
}
