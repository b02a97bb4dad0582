import assert from "node:assert/strict";
import { test } from "node:test";

import { Datamarker, datamarkerAt } from "../src/datamarker.js";
import { EpochRefused, PermanentError } from "../src/errors.js";
import {
  DataLoss_Kind as LossKind,
  Failed_Reason as FailedReason,
  ShardNotice_Kind as NoticeKind,
} from "../src/generated/wormhole/wire/v1/push_pb.js";
import type { ChunkEnd, Flow, Handler, Revocation, ScanEnd } from "../src/handler.js";
import { Shards } from "../src/shards.js";
import type { Update } from "../src/update.js";
import {
  assign,
  batch,
  body,
  type Frame,
  hello,
  int,
  marker,
  markerAt,
  opened,
  Publisher,
  revoke,
  schema,
  settings,
} from "./publisher.js";

function parked(updateId: string, refused = ""): Frame {
  return { case: "parked", value: { flow: 1, epoch: 1n, updateId, refused } };
}

/** Writes down what it is called with. */
class Recorder implements Handler {
  readonly calls: string[] = [];
  fails = new Map<string, number>();

  onUpdate(update: Update): void {
    this.calls.push(`${update.id}${update.endsTransaction ? "." : ""}`);
    const left = this.fails.get(update.id) ?? 0;
    this.fails.set(update.id, left - 1);
    if (left > 0) throw new Error("no");
  }

  onDatamarker(to: Datamarker): void {
    this.calls.push(`marker ${to}`);
  }

  onRollback(to: Datamarker): void {
    this.calls.push(`back to ${to}`);
  }
}

test("updates run in order, then the datamarker, then it is acknowledged", async () => {
  const recorder = new Recorder();
  const publisher = await opened(recorder);
  publisher.send(batch(1, body(1, [1, 2])), batch(2, body(2, [3])), marker(2));
  assert.equal((await publisher.answer("ack")).marker?.delivered, "2");
  assert.deepEqual(recorder.calls, ["db1:1:0", "db1:1:1.", "db1:2:0.", "marker 1/1/2"]);
  publisher.send(revoke());
  assert.equal((await publisher.answer("released")).marker?.delivered, "2");
});

test("a failed update is tried again from the last acknowledged datamarker", async () => {
  const recorder = new Recorder();
  recorder.fails.set("db1:3:0", 2);
  const publisher = await opened(recorder);
  publisher.send(batch(1, body(1, [1])), marker(1));
  await publisher.answer("ack");
  publisher.send(batch(2, body(2, [2])), batch(3, body(3, [3])), marker(3));
  assert.equal((await publisher.answer("ack")).marker?.delivered, "3");
  const again = ["db1:2:0.", "db1:3:0.", "back to 1/1/1"];
  assert.deepEqual(recorder.calls, [
    ...["db1:1:0.", "marker 1/1/1"], ...again, ...again, "db1:2:0.", "db1:3:0.", "marker 1/1/3",
  ]);
  const numbers = publisher.answers.flatMap((a) => (a.case === "progress" ? [a.value.number] : []));
  assert.deepEqual(numbers, [...new Set(numbers)].sort(), "progress only rises");
});

test("when the retries are exhausted the flow halts, and nothing is acknowledged", async () => {
  const recorder = new Recorder();
  recorder.fails.set("db1:1:0", Infinity);
  const halts: unknown[] = [];
  const publisher = await opened(Object.assign(recorder, { onHalted: (halt: unknown) => void halts.push(halt) }));
  publisher.send(batch(1, body(1, [1])), marker(1));
  const failed = await publisher.answer("failed");
  assert.deepEqual([failed.reason, failed.updateId], [FailedReason.HANDLER, "db1:1:0"]);
  assert.equal(recorder.calls.filter((call) => call === "db1:1:0.").length, 3);
  publisher.send(batch(2, body(2, [1])), revoke());
  assert.equal((await publisher.answer("released")).marker, undefined);
  assert.equal(halts.length, 1);
});

test("a PermanentError is not tried again", async () => {
  let calls = 0;
  const onUpdate = (): void => {
    calls++;
    throw new PermanentError("never");
  };
  const publisher = await opened({ onUpdate });
  publisher.send(batch(1, body(1, [1])));
  assert.equal((await publisher.answer("failed")).reason, FailedReason.HANDLER);
  assert.equal(calls, 1);
});

test("an exhausted update is parked, with later ones of its row, and only then acknowledged", async () => {
  const recorder = new Recorder();
  recorder.fails.set("db1:1:0", Infinity);
  const publisher = await opened(recorder, {}, { park: true });
  publisher.send(batch(1, body(1, [7, 8])), batch(2, body(2, [7, 9])), marker(2));
  const first = await publisher.answer("park");
  assert.deepEqual([first.updateId, first.error, first.place?.index], ["db1:1:0", "Error: no", 0]);
  assert.ok(first.schema.length && first.body.length);
  assert.ok(!publisher.answers.some(({ case: kind }) => kind === "ack" || kind === "progress"));
  publisher.send(parked("db1:1:0"));
  const second = await publisher.answer("park");
  assert.deepEqual([second.updateId, second.error], ["db1:2:0", ""]);
  publisher.send(parked("db1:2:0"));
  assert.equal((await publisher.answer("ack")).marker?.delivered, "2");
  assert.deepEqual(recorder.calls.slice(-4), ["back to 1/1/0", "db1:1:1.", "db1:2:1.", "marker 1/1/2"]);
});

test("what the publisher refuses to park halts the flow", async () => {
  const recorder = new Recorder();
  recorder.fails.set("db1:1:0", Infinity);
  const publisher = await opened(recorder, {}, { park: true });
  publisher.send(batch(1, body(1, [7])), marker(1));
  await publisher.answer("park");
  publisher.send(parked("db1:1:0", "too many"));
  const failed = await publisher.answer("failed");
  assert.equal(failed.reason, FailedReason.HANDLER);
  assert.match(failed.message, /too many/);
});

test("updates of a parked row are parked from its place on, and skipped ones are passed over", async () => {
  const recorder = new Recorder();
  const key = { table: "users", values: [int(7)] };
  const first = { position: { incarnation: 1, file: 1n, offset: 2n }, transaction: "db1:2", index: 0 };
  const publisher = new Publisher({ handler: recorder });
  const value = { flow: 1, epoch: 1n, application: "app", shard: "s", marker: markerAt(0), skip: ["db1:3:0"] };
  publisher.send(hello, schema, { case: "assign", value: { ...value, parked: [{ key, first }] } });
  await publisher.answer("accepted");
  publisher.send(batch(1, body(1, [7])), batch(2, body(2, [7])));
  assert.equal((await publisher.answer("park")).updateId, "db1:2:0");
  publisher.send(parked("db1:2:0"), batch(3, body(3, [1])), marker(3));
  await publisher.answer("ack");
  assert.deepEqual(recorder.calls, ["db1:1:0.", "marker 1/1/3"]);
});

test("an update whose parking was not answered is not acknowledged when the shard goes", async () => {
  const key = { table: "users", values: [int(7)] };
  const first = { position: { incarnation: 1, file: 1n, offset: 1n }, transaction: "db1:1", index: 0 };
  const publisher = new Publisher();
  const value = { flow: 1, epoch: 1n, application: "app", shard: "s", marker: markerAt(0), parked: [{ key, first }] };
  publisher.send(hello, schema, { case: "assign", value });
  await publisher.answer("accepted");
  publisher.send(batch(1, body(1, [7])), marker(1));
  await publisher.answer("park");
  publisher.send(revoke());
  assert.equal((await publisher.answer("released")).marker, undefined);
});

test("a kept datamarker is where delivery begins, unless the shard was moved since", async () => {
  const have = datamarkerAt({ incarnation: 1, file: 1n, offset: 50n });
  const accepted = async (kept: object, more: object): Promise<string | undefined> => {
    const handler = { onUpdate: () => undefined, onAssigned: () => ({ have, ...kept }) };
    const publisher = new Publisher({ handler });
    publisher.send(hello, assign(more));
    const { have: sent, move } = await publisher.answer("accepted");
    return sent && `${String(sent.order?.offset)} ${move}`;
  };
  assert.equal(await accepted({}, {}), "50 0");
  assert.equal(await accepted({ move: 3n }, { move: 3n }), "50 3");
  assert.equal(await accepted({ move: 2n }, { move: 3n }), undefined);
  assert.equal(await accepted({ move: 3n }, { move: 2n, rewound: true }), "50 3");
  assert.equal(await accepted({}, { rewound: true }), undefined);
  assert.deepEqual(Datamarker.fromBytes(have.toBytes()), have);
});

test("an application may refuse an epoch", async () => {
  const onAssigned = (): undefined => {
    throw new EpochRefused(9n);
  };
  const publisher = new Publisher({ handler: { onUpdate: () => undefined, onAssigned } });
  publisher.send(hello, assign());
  const failed = await publisher.answer("failed");
  assert.deepEqual([failed.reason, failed.heldEpoch, failed.heldBy], [FailedReason.STALE_EPOCH, 9n, ""]);
});

test("the last update of a transaction is known, however it was divided", async () => {
  const recorder = new Recorder();
  const publisher = await opened(recorder);
  const open = { unfinished: true };
  publisher.send(
    batch(1, body(1, [1, 2], { ends: false }), open),
    batch(2, body(1, [], { ends: false }), open),
    batch(3, body(1, [])),
    batch(4, body(2, [3], { ends: false }), open),
    batch(5, body(2, [4], { firstIndex: 1 })),
    batch(6, body(3, [5], { ends: false }), open),
    batch(7, body(4, [6])),
    marker(7),
  );
  await publisher.answer("ack");
  const updates = ["db1:1:0", "db1:1:1.", "db1:2:0", "db1:2:1.", "db1:3:0.", "db1:4:0."];
  assert.deepEqual(recorder.calls, [...updates, "marker 1/1/7"]);
});

test("a rolled back transaction is undone before the first update", async () => {
  const recorder = new Recorder();
  const publisher = await opened(recorder, {}, { rolledBack: "db1:9" });
  publisher.send(batch(1, body(1, [1])), marker(1));
  await publisher.answer("ack");
  assert.deepEqual(recorder.calls, ["back to 1/1/0", "db1:1:0.", "marker 1/1/1"]);
});

test("the application decides on a loss of log; without a callback the flow halts there", async () => {
  const loss: Frame = { case: "dataLoss", value: { flow: 1, epoch: 1n, kind: LossKind.PURGED, firstMissing: "5" } };
  for (const decision of ["continue", "halt", undefined] as const) {
    const onDataLoss = () => decision ?? "halt";
    const handler = { onUpdate: () => undefined, ...(decision ? { onDataLoss } : {}) };
    const publisher = await opened(handler);
    publisher.send(loss);
    assert.equal((await publisher.answer("lossDecision")).proceed, decision === "continue");
  }
});

test("a replay of last changes only is refused, unless the effects depend on these alone", async () => {
  const begin: Frame = { case: "notice", value: { flow: 1, epoch: 1n, kind: NoticeKind.REPLAY_BEGIN, latest: true } };
  const refusing = await opened({ onUpdate: () => undefined });
  refusing.send(begin);
  assert.match((await refusing.answer("failed")).message, /latest-refused/);
  const taking = await opened({ onUpdate: () => undefined }, { stateOnly: true });
  taking.send(begin, marker(1));
  await taking.answer("ack");
});

test("ranges and tables of a backfill, with keys that are parked left out", async () => {
  const seen: (ChunkEnd | ScanEnd)[] = [];
  const handler = {
    onUpdate: () => undefined,
    onChunkEnd: (end: ChunkEnd) => void seen.push(end),
    onScanEnd: (end: ScanEnd) => void seen.push(end),
  };
  const publisher = new Publisher({ handler });
  const key = { table: "users", values: [int(7)] };
  const first = { position: { incarnation: 1, file: 1n, offset: 2n }, transaction: "db1:2" };
  const value = { flow: 1, epoch: 1n, application: "app", shard: "s", marker: markerAt(0), generation: 4n };
  publisher.send(hello, schema, { case: "assign", value: { ...value, parked: [{ key, first }] } });
  assert.ok((await publisher.answer("welcome")).takesRanges);
  await publisher.answer("accepted");
  const range = { flow: 1, epoch: 1n, schema: 0x8936d676025edc4bn, portable: true, rows: 3n };
  publisher.send(
    { case: "chunkEnd", value: { ...range, after: { values: [int(1)] }, until: { values: [int(9)] } } },
    { case: "chunkEnd", value: { ...range, narrowed: true } },
    { case: "scanEnd", value: { flow: 1, epoch: 1n, table: "users", generation: 4n, rows: 3n } },
    marker(1),
  );
  await publisher.answer("ack");
  const common = { table: "users", generation: 4n, except: [[7n]], rows: 3n };
  assert.deepEqual(seen, [{ ...common, columns: ["id"], after: [1n], until: [9n], alone: [] }, common]);
});

test("a callback that takes too long has its signal aborted, and is tried again", async () => {
  const alive = setInterval(() => undefined, 1000); // the limit's own timer does not keep a process running
  let calls = 0;
  const onUpdate = async (_: Update, { signal }: Flow): Promise<void> => {
    if (++calls > 1) return;
    await new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
  };
  const publisher = await opened({ onUpdate }, { handlerTimeoutMs: 5 });
  publisher.send(batch(1, body(1, [1])), marker(1));
  await publisher.answer("ack");
  assert.equal(calls, 2);
  clearInterval(alive);
});

test("a flow that is revoked waits for its running callback, and begins no other", async () => {
  let end = (): void => undefined;
  let begun = (): void => undefined;
  const running = new Promise<void>((resolve) => (begun = resolve));
  const keys: unknown[] = [];
  const onUpdate = (update: Update): Promise<void> => {
    keys.push(update.key[0]);
    begun();
    return new Promise((resolve) => (end = resolve));
  };
  const publisher = await opened({ onUpdate });
  publisher.send(batch(1, body(1, [1, 2])), marker(1));
  await running;
  publisher.send(revoke());
  await new Promise((resolve) => setImmediate(resolve));
  assert.ok(!publisher.answers.some(({ case: kind }) => kind === "released"));
  end();
  assert.equal((await publisher.answer("released")).marker, undefined);
  assert.deepEqual(keys, [1n]);
});

test("a datamarker is not acknowledged when the stream ended during its callback", async () => {
  let end = (): void => undefined;
  let begun = (): void => undefined;
  const running = new Promise<void>((resolve) => (begun = resolve));
  const onDatamarker = (): Promise<void> => {
    begun();
    return new Promise((resolve) => (end = resolve));
  };
  const revoked = new Promise<Revocation>((resolve) => {
    void opened({ onUpdate: () => undefined, onDatamarker, onRevoked: resolve }).then((publisher) => {
      publisher.send(marker(1));
      void running.then(() => {
        publisher.connection.lost("gone");
        end();
      });
    });
  });
  assert.equal((await revoked).acknowledged, undefined);
});

test("onUpdates gets several, and one by one where one of them is parked", async () => {
  const calls: number[][] = [];
  const onUpdates = (updates: readonly Update[]): void => {
    calls.push(updates.map((update) => Number(update.key[0])));
    if (updates.some((update) => update.key[0] === 2n)) throw new Error("no");
  };
  const publisher = await opened({ onUpdates }, { retry: { attempts: 2, firstWaitMs: 0 } }, { park: true });
  publisher.send(batch(1, body(1, [1, 2, 3])), marker(1));
  assert.equal((await publisher.answer("park")).updateId, "db1:1:1");
  publisher.send(parked("db1:1:1"));
  await publisher.answer("ack");
  assert.deepEqual(calls, [[1, 2, 3], [1, 2, 3], [1], [2], [1], [2], [1], [3]]);
});

test("epochs are held over all streams: the higher one wins, and the former publisher hears of it", async () => {
  const shards = new Shards(settings());
  const one = new Publisher({}, shards);
  const other = new Publisher({}, shards);
  one.send(hello, assign({ epoch: 5n }));
  await one.answer("accepted");
  other.send({ case: "hello", value: { ...(hello.value as object), publisher: "p2", owner: "o2" } });
  other.send(assign({ epoch: 4n }));
  const stale = await other.answer("failed");
  assert.equal(stale.reason, FailedReason.STALE_EPOCH);
  assert.deepEqual([stale.heldEpoch, stale.heldBy, stale.contested], [5n, "p1", true]);
  other.send(assign({ flow: 2, epoch: 5n }));
  assert.equal((await other.answer("failed")).reason, FailedReason.STALE_EPOCH);
  other.send(assign({ flow: 3, epoch: 6n, yields: true }));
  assert.equal((await other.answer("failed")).reason, FailedReason.STALE_EPOCH);
  other.send(assign({ flow: 4, epoch: 6n }));
  await other.answer("accepted");
  const lost = await one.answer("failed");
  assert.deepEqual([lost.reason, lost.heldEpoch, lost.contested], [FailedReason.STALE_EPOCH, 6n, true]);
  other.connection.lost("gone");
  one.send(assign({ flow: 9, epoch: 6n }));
  assert.equal((await one.answer("failed")).contested, false);
});

test("a subscriber that leaves acknowledges what is processed, and releases its flows", async () => {
  const recorder = new Recorder();
  const shards = new Shards(settings({ handler: recorder }));
  const publisher = new Publisher({ handler: recorder }, shards);
  publisher.send(hello, schema, assign());
  await publisher.answer("accepted");
  publisher.send(batch(1, body(1, [1])));
  await publisher.answer("progress");
  publisher.send(marker(1));
  await shards.leave(1000);
  publisher.connection.leave();
  assert.deepEqual(publisher.answers.slice(-3).map(({ case: kind }) => kind), ["ack", "released", "goodbye"]);
});
