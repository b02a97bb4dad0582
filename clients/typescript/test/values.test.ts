import assert from "node:assert/strict";
import { test } from "node:test";

import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";

import { parseBody } from "../src/body.js";
import { ProtocolError } from "../src/errors.js";
import { ValueSchema } from "../src/generated/wormhole/wire/v1/update_pb.js";
import { parseSchema, type Schema } from "../src/schema.js";
import { type Batch, type Update, updatesOf } from "../src/update.js";
import { Decimal, UNAVAILABLE, valueOf } from "../src/values.js";
import { body, row, schemaId } from "./publisher.js";

function decoded(kind: MessageInitShape<typeof ValueSchema>["kind"]): unknown {
  const data = toBinary(ValueSchema, create(ValueSchema, kind ? { kind } : {}));
  return valueOf(data, 0, data.length);
}

test("64-bit integers are exact at every bit", () => {
  const edges = [0n, 1n, 127n, 128n, 2n ** 31n, 2n ** 32n, 2n ** 53n - 1n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n];
  for (const value of edges) {
    for (const signed of [value, -value, -value - 1n]) assert.equal(decoded({ case: "int", value: signed }), signed);
    assert.equal(decoded({ case: "uint", value }), value);
  }
  assert.equal(decoded({ case: "uint", value: 2n ** 64n - 1n }), 2n ** 64n - 1n);
});

test("doubles keep their bits", () => {
  for (const value of [0, -0, 0.1, 5e-324, Number.MAX_VALUE, Infinity, -Infinity, NaN]) {
    assert.ok(Object.is(decoded({ case: "double", value }), value), String(value));
  }
});

test("decimals keep their digits and their scale", () => {
  for (const value of ["1.50", "0", "-0.00", "12345678901234567890.123456789", "1E+400", "NaN", "-Infinity"]) {
    assert.deepEqual(decoded({ case: "decimal", value }), new Decimal(value));
    assert.equal(String(new Decimal(value)), value);
  }
  for (const value of ["", "1,5", "0x10", "one", "1.5 ", "--1", "e5"]) {
    assert.throws(() => decoded({ case: "decimal", value }), ProtocolError, value);
  }
});

test("decimals are equal as numbers", () => {
  for (const [a, b] of [["1.0", "1"], ["100", "1E2"], ["-0", "0.000"], ["0.10e1", "1"], ["NaN", "nan"]] as const) {
    assert.ok(new Decimal(a).equals(new Decimal(b)), `${a} ${b}`);
  }
  assert.ok(!new Decimal("1").equals(new Decimal("-1")));
  assert.ok(!new Decimal("10").equals(new Decimal("1")));
});

test("a byte order mark belongs to a text, and what is no UTF-8 is refused", () => {
  for (const value of ["", "\uFEFFa", "ü", "a".repeat(100) + "💡", "\u0000"]) {
    assert.equal(decoded({ case: "text", value }), value);
  }
  for (const data of [[0x12, 1, 0xff], [0x12, 3, 0xed, 0xa0, 0x80], [0x12, 2, 0xc0, 0x80]]) {
    assert.throws(() => valueOf(Uint8Array.from(data), 0, data.length), ProtocolError);
  }
});

test("bytes are a copy", () => {
  const data = toBinary(ValueSchema, create(ValueSchema, { kind: { case: "bytes", value: Uint8Array.of(1, 2) } }));
  const value = valueOf(data, 0, data.length);
  data.fill(0);
  assert.deepEqual(value, Uint8Array.of(1, 2));
});

test("null, unavailable and nothing are told apart from values", () => {
  assert.equal(decoded({ case: "null", value: true }), null);
  assert.equal(decoded({ case: "unavailable", value: true }), UNAVAILABLE);
  assert.equal(decoded(undefined), UNAVAILABLE);
  assert.equal(decoded({ case: "bool", value: false }), false);
});

test("entries of several fields are joined, and of several kinds the last one counts", () => {
  const one = [0x52, 6, 0x0a, 1, 65, 0x12, 1, 66];
  assert.deepEqual(valueOf(Uint8Array.from([...one, ...one]), 0, 16), [
    [Uint8Array.of(65), Uint8Array.of(66)],
    [Uint8Array.of(65), Uint8Array.of(66)],
  ]);
  assert.equal(valueOf(Uint8Array.from([...one, 0x18, 4]), 0, 10), 2n);
  assert.deepEqual(valueOf(Uint8Array.from([0x18, 4, ...one]), 0, 10), [[Uint8Array.of(65), Uint8Array.of(66)]]);
  assert.throws(() => valueOf(Uint8Array.of(0x52, 2, 0x0a, 0), 0, 4), ProtocolError);
});

const users: Schema = parseSchema(
  0x8936d676025edc4bn,
  Buffer.from("0a057573657273" + "12090a0269641203696e74" + "1a0c0a046e616d651204" + "74657874", "hex"),
);

function updates(data: Uint8Array, schema = users): Update[] {
  const batch: Batch = {
    body: parseBody(data),
    shard: "s",
    epoch: 7n,
    replayed: false,
    generation: 0n,
    schemaOf: () => schema,
  };
  return updatesOf(batch);
}

test("the worked example of docs/wire.md", () => {
  const example =
    "0a14" + "0802" + "1202180e" + "1a051203416461" + "22051203616461" +
    "12084bdc5e0276d63689" + "3203646231" + "42012a" + "4801" + "520101" + "5a012a" + "620100" + "6a0101";
  const [update] = updates(Buffer.from(example, "hex"));
  assert.ok(update);
  assert.equal(update.id, "db1:42:0");
  assert.equal(update.op, "update");
  assert.equal(update.table, "users");
  assert.deepEqual(update.key, [7n]);
  assert.deepEqual({ ...update.after }, { name: "Ada" });
  assert.deepEqual({ ...update.before }, { name: "ada" });
  assert.equal(update.oldKey, undefined);
  assert.ok(update.endsTransaction);
  const { position, committedAtMicros } = update.transaction;
  assert.deepEqual(position, { incarnation: 1, file: 1n, offset: 42n });
  assert.equal(committedAtMicros, undefined);
});

test("a detached update is the same update, and its bytes deliver it again", () => {
  const [, second] = updates(body(5, [1, 2], { ends: false, firstIndex: 9 }));
  assert.ok(second);
  for (const copy of [second.detach(), ...updates(second.encoded())]) {
    assert.equal(copy.id, "db1:5:10");
    assert.deepEqual(copy.key, [2n]);
    assert.equal(copy.endsTransaction, false);
    assert.equal(copy.inUnfinished, true);
  }
});

test("a column may have any name", () => {
  const schema = { ...users, columns: [{ name: "__proto__", type: "text" }] };
  const [update] = updates(body(1, [1]), schema);
  assert.deepEqual(Object.entries(update?.after ?? {}), [["__proto__", "name 1"]]);
});

test("a row that breaks off is refused whichever field is read", () => {
  const columns = "1208" + "0".repeat(16) + "320161" + "420101" + "4801" + "520101" + "5a0101" + "620100" + "6a0101";
  const [update] = updates(Buffer.from("0a05" + "08021202ff" + columns, "hex"));
  assert.throws(() => update?.op, ProtocolError);
});

test("a schema whose id is another one is refused", () => {
  assert.throws(() => parseSchema(1n, users.canonical), /hash to 0x8936d676025edc4b/);
});

test("arrays of a body have to fit each other", () => {
  const wrong: [string, Uint8Array][] = [
    ["updates in no transaction", Buffer.from("0a020801", "hex")],
    ["tx_offset has 0 entries", Buffer.from("420101" + "520101" + "620100", "hex")],
    ["schema_index points past", Buffer.concat([body(1, [1]), Buffer.from("1a0105", "hex")])],
    ["tx_end must ascend", Buffer.concat([body(1, [1], { ends: false }), Buffer.from("6a0102", "hex")])],
    ["after the end of the last", Buffer.concat([body(1, [1]), Buffer.from("0a020801", "hex")])],
    ["breaks off", Buffer.from("0a", "hex")],
  ];
  for (const [why, data] of wrong) assert.throws(() => parseBody(data), new RegExp(why), why);
});

test("row() and schemaId of the other tests fit", () => {
  assert.equal(schemaId, users.id);
  assert.ok(row(1).length > 0);
});
