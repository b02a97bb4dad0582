import assert from "node:assert/strict";
import { test } from "node:test";

import {
  DataLoss_Kind as LossKind,
  Failed_Reason as FailedReason,
  Goodbye_Reason as Reason,
  Verify,
} from "../src/generated/wormhole/wire/v1/push_pb.js";
import { Shards } from "../src/shards.js";
import {
  assign,
  batch,
  body,
  encode,
  type Frame,
  hello,
  marker,
  opened,
  Publisher,
  revoke,
  schema,
  settings,
} from "./publisher.js";

const MIB = 1 << 20;

function loss(): Frame {
  return { case: "dataLoss", value: { flow: 1, epoch: 1n, kind: LossKind.PURGED } };
}

function part(index: number, data: Uint8Array, total: number, more: { last?: boolean; number?: bigint } = {}): Frame {
  return { case: "part", value: { flow: 1, epoch: 1n, number: 1n, index, data, totalBytes: BigInt(total), ...more } };
}

function chunkEnd(more: object = {}): Frame {
  return { case: "chunkEnd", value: { flow: 1, epoch: 1n, schema: 0x8936d676025edc4bn, portable: true, ...more } };
}

const one = body(1, [1]);
const breaches: [string, Frame[]][] = [
  ["assign: the first frame", [assign()]],
  ["hello: a second one", [hello, hello]],
  ["assign.application", [hello, assign({ application: "other" })]],
  ["assign.shard: empty", [hello, assign({ shard: "" })]],
  ["assign.shard: longer", [hello, assign({ shard: "x".repeat(4097) })]],
  ["assign.rolled_back", [hello, assign({ rolledBack: "x".repeat(1001) })]],
  ["assign.epoch: 9223372036854775808", [hello, assign({ epoch: 1n << 63n })]],
  ["assign.epoch: 1 for flow 1", [hello, assign(), assign()]],
  ["assign.verify", [hello, assign({ verify: Verify.COMPARE, generation: 1n })]],
  ["batch.flow: 1 was never", [hello, batch(1, one)]],
  ["batch.flow .* came before Accepted", [hello, assign(), batch(1, one)]],
  ["schema.id", [hello, { case: "schema", value: { id: 1n, canonical: Uint8Array.of() } }]],
  ["hello.publisher: longer", [{ case: "hello", value: { publisher: "x".repeat(1001) } }]],
];
for (const [why, frames] of breaches) {
  test(`breaks the protocol: ${why}`, async () => {
    const publisher = new Publisher();
    publisher.send(...frames);
    const goodbye = await publisher.answer("goodbye");
    assert.equal(goodbye.reason, Reason.PROTOCOL);
    assert.match(goodbye.message, new RegExp(why));
    assert.ok(publisher.connection.session.closed);
  });
}

const inFlow: [string, Frame[]][] = [
  ["batch.number .*2 came where 1 was due", [batch(2, one)]],
  ["batch.number .*1 came where 2 was due", [batch(1, one), batch(1, one)]],
  ["batch.body .*empty", [batch(1, Uint8Array.of())]],
  ["batch.epoch: 2", [batch(1, one, { epoch: 2n })]],
  ["batch.body .*over the credit", [batch(1, new Uint8Array(40_000)), batch(2, new Uint8Array(40_000))]],
  ["batch.body .*at most", [batch(1, new Uint8Array(200_001))]],
  ["part.index .*1 begins", [part(1, one, 10)]],
  ["part.index .*2 came where 1", [part(0, one, 1000), part(2, one, 1000)]],
  ["part.total_bytes", [part(0, one, 1000), part(1, one, 1001)]],
  ["part.number", [part(0, one, 1000), part(1, one, 1000, { number: 2n })]],
  ["part.data .*empty", [part(0, Uint8Array.of(), 1000)]],
  ["part.data .*bytes so far", [part(0, one, 1000, { last: true })]],
  ["part.total_bytes .*at most", [part(0, one, 2 ** 40)]],
  ["datamarker.flow .*amid the parts", [part(0, one, 1000), marker(1)]],
  ["datamarker.marker: order", [{ case: "datamarker", value: { flow: 1, epoch: 1n, marker: {} } }]],
  ["notice.kind: 0", [{ case: "notice", value: { flow: 1, epoch: 1n } }]],
  ["data_loss.kind: 0", [{ case: "dataLoss", value: { flow: 1, epoch: 1n } }]],
  ["data_loss.flow: another", [loss(), loss()]],
  ["chunk_end.flow .*without a generation", [chunkEnd()]],
  ["schema_ids.*was not sent", [batch(1, withSchema(one, 7))]],
  ["batch body", [batch(1, Uint8Array.of(1, 2, 3))]],
];

/** The body with another schema, whose id is this byte eight times. */
function withSchema(data: Uint8Array, byte: number): Uint8Array {
  return Buffer.concat([Uint8Array.of(0x12, 8), new Uint8Array(8).fill(byte), data]);
}

for (const [why, frames] of inFlow) {
  test(`breaks the protocol in a flow: ${why}`, async () => {
    const publisher = await opened({ onUpdate: () => undefined }, { credit: 64 << 10, maxUpdate: 100_000 });
    publisher.send(...frames);
    const goodbye = await publisher.answer("goodbye");
    assert.equal(goodbye.reason, Reason.PROTOCOL);
    assert.match(goodbye.message, new RegExp(why));
  });
}

const ranges: [string, object][] = [
  ["chunk_end.schema", { schema: 5n }],
  ["chunk_end.until: is not above", { after: { values: [key(5)] }, until: { values: [key(5)] } }],
  ["chunk_end.after: 0 values", { after: {} }],
  ["chunk_end.after: no key", { after: { values: [key(5)], whole: true } }],
  ["chunk_end.after: a value for column id", { after: { values: [{ kind: { case: "text", value: "5" } }] } }],
  ["chunk_end.alone", { alone: [{ values: [key(5)] }] }],
  ["chunk_end: more than", { except: Array.from({ length: 9000 }, () => ({})) }],
];

function key(id: number): object {
  return { kind: { case: "int", value: BigInt(id) } };
}

for (const [why, more] of ranges) {
  test(`breaks the protocol with a range: ${why}`, async () => {
    const publisher = await opened({ onUpdate: () => undefined }, {}, { generation: 1n });
    publisher.send(chunkEnd(more));
    assert.match((await publisher.answer("goodbye")).message, new RegExp(why));
  });
}

test("a message that is none, too long, or of an unknown kind ends the stream", async () => {
  const unknown = Uint8Array.of(0x0a, 3, 0xfa, 0x06, 0);
  for (const data of [Uint8Array.of(0x0a, 200), new Uint8Array(5 * MIB), unknown]) {
    const publisher = new Publisher();
    publisher.send(hello);
    publisher.connection.receive(data);
    assert.equal((await publisher.answer("goodbye")).reason, Reason.PROTOCOL);
  }
});

test("a publisher of another version, application or subscriber is refused, and hears why", async () => {
  const given: [object, Reason][] = [
    [{ minVersion: 4, maxVersion: 9 }, Reason.VERSION],
    [{ minVersion: 1, maxVersion: 2 }, Reason.VERSION],
    [{ application: "other" }, Reason.WRONG_ADDRESS],
    [{ subscriber: "s2" }, Reason.WRONG_ADDRESS],
  ];
  for (const [more, reason] of given) {
    const publisher = new Publisher();
    publisher.send({ case: "hello", value: { ...(hello.value as object), ...more } });
    assert.equal((await publisher.answer("goodbye")).reason, reason);
  }
});

test("a range of versions with ours is accepted", async () => {
  const publisher = new Publisher();
  publisher.send({ case: "hello", value: { ...(hello.value as object), minVersion: 1, maxVersion: 7 } });
  assert.equal((await publisher.answer("welcome")).version, 3);
});

test("unknown fields are ignored", async () => {
  const publisher = new Publisher();
  const frame = encode(hello);
  const field = Uint8Array.of(0xfa, 0x06, 1, 7); // number 111
  const longer = Uint8Array.of(0x0a, frame.length - 2 + field.length);
  publisher.connection.receive(Buffer.concat([field, longer, frame.subarray(2), field]));
  assert.equal((await publisher.answer("welcome")).application, "app");
});

test("late frames are dropped", async () => {
  const publisher = await opened({ onUpdate: () => undefined });
  publisher.send(revoke());
  await publisher.answer("released");
  publisher.send(batch(1, one), marker(1), assign({ epoch: 2n }));
  await publisher.answer("accepted");
  publisher.send(batch(1, one), batch(1, one, { epoch: 2n }));
  assert.equal((await publisher.answer("progress")).epoch, 2n);
  assert.equal(publisher.connection.session.dropped, 3);
});

test("a heartbeat is sent in time, and a silent publisher is left after three", () => {
  const { session } = new Publisher().connection;
  const began = 1_000_000;
  assert.deepEqual(session.receive(encode(hello), began).map(({ kind }) => kind), ["welcomed"]);
  session.takeOutput(began);
  assert.equal(session.deadline, began + 3000);
  assert.deepEqual(session.tick(began + 3000), []);
  assert.ok(session.takeOutput(began + 3000));
  assert.deepEqual(session.tick(began + 8999), []);
  assert.deepEqual(session.tick(began + 9000).map(({ kind }) => kind), ["closed"]);
});

test("a publisher without a hello is left", () => {
  const { session } = new Publisher().connection;
  assert.deepEqual(session.tick(session.deadline).map(({ kind }) => kind), ["closed"]);
});

test("what publishers make this process keep is bounded, for each of them alone", async () => {
  const options = { maxState: 2 * MIB };
  const shards = new Shards(settings(options));
  const greedy = new Publisher(options, shards);
  const modest = new Publisher(options, shards);
  greedy.send(hello);
  modest.send({ case: "hello", value: { ...(hello.value as object), publisher: "p2", owner: "o2" } });
  for (let flow = 1; flow <= 200 && !greedy.connection.session.closed; flow++) {
    greedy.send(assign({ flow, shard: `s${flow}` }));
  }
  const goodbye = await greedy.answer("goodbye");
  assert.match(goodbye.message, /does not fit/);
  modest.send(assign({ shard: "mine" }));
  assert.equal((await modest.answer("accepted")).flow, 1);
});

test("lists of an assignment count before they are read", async () => {
  const publisher = new Publisher({ maxState: 8 * MIB });
  publisher.send(hello);
  publisher.send(assign({ skip: Array.from({ length: 100_000 }, () => "") }));
  assert.match((await publisher.answer("goodbye")).message, /does not fit/);
});

test("datamarkers that are not acknowledged are bounded", async () => {
  const hang = new Promise<void>(() => undefined);
  const publisher = await opened({ onUpdate: () => hang }, { maxState: MIB });
  publisher.send(batch(1, one));
  for (let i = 0; i < 10_000 && !publisher.connection.session.closed; i++) publisher.send(marker(i));
  assert.match((await publisher.answer("goodbye")).message, /what waits for shard s does not fit/);
});

test("a body above the credit is taken alone, and refused without room for it", async () => {
  const hang = new Promise<void>(() => undefined);
  const options = { handler: { onUpdate: () => hang }, credit: 64 << 10, maxUpdate: MIB, maxFrame: 8 * MIB };
  const publisher = new Publisher(options);
  publisher.send(hello, schema);
  const big = 2 * MIB - 1;
  for (const flow of [1, 2, 3]) {
    publisher.send(assign({ flow, shard: `s${flow}` }));
    await publisher.answer("accepted");
    const value = { flow, epoch: 1n, number: 1n, totalBytes: BigInt(big), data: Uint8Array.of(1) };
    publisher.send({ case: "part", value });
  }
  const failed = await publisher.answer("failed");
  assert.equal(failed.flow, 3);
  assert.equal(failed.reason, FailedReason.RESEND);
});
