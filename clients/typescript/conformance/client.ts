/** The client process of the conformance kit (docs/conformance.md): prints what the library reports, nothing else. */

import { createInterface } from "node:readline";

import {
  type Assignment,
  type ChunkEnd,
  Datamarker,
  Decimal,
  type Flow,
  type Halt,
  type Handler,
  type Key,
  type KeptMarker,
  type Row,
  Subscriber,
  type Update,
  UNAVAILABLE,
  type Value,
} from "../src/index.js";

interface Case {
  readonly case: string;
  readonly dial: string;
  readonly second?: string;
  readonly application: string;
  readonly id: string;
  readonly tls?: { readonly cert?: string; readonly key?: string; readonly ca: string; readonly publisher: string };
  readonly token?: string;
  readonly max_attempts: number;
  readonly first_wait_ms: number;
  readonly credit: number;
  readonly max_frame: number;
  readonly max_body: number;
  readonly handler?: Record<string, { readonly do: "raise" | "hang" | "exit"; readonly times?: number }>;
  readonly have?: Record<string, { readonly marker: string; readonly move?: number }>;
  readonly data_loss: "continue" | "halt";
}

const EXITED = 3;

/** `JSON.stringify` would need a `bigint` to be a float: it is marked as text, and the quotes are taken away. */
function print(event: string, about: Record<string, unknown> = {}): void {
  const marked = (_: string, value: unknown): unknown => (typeof value === "bigint" ? `\u0001${value}` : value);
  const line = JSON.stringify({ event, ...about }, marked).replace(/"\\u0001(-?\d+)"/g, "$1");
  process.stdout.write(`${line}\n`);
}

function base64(data: Uint8Array): string {
  return Buffer.from(data).toString("base64");
}

function markerText(marker: Datamarker | undefined): string | null {
  return marker === undefined ? null : base64(marker.toBytes());
}

function shown(value: Value): { type: string; value?: unknown } {
  if (value === null) return { type: "null" };
  if (value === UNAVAILABLE) return { type: "unavailable" };
  if (value instanceof Uint8Array) return { type: "bytes", value: base64(value) };
  if (value instanceof Decimal) return { type: "decimal", value: value.text };
  switch (typeof value) {
    case "string":
      return { type: "text", value };
    case "bigint":
      return { type: "int", value: value.toString() };
    case "number":
      return { type: "double", value: Object.is(value, -0) ? "-0" : value.toString() };
    case "boolean":
      return { type: "bool", value: value.toString() };
    default:
      return { type: "entries", value: value.map((entry) => entry.map(base64)) };
  }
}

function shownKey(key: Key | undefined): unknown {
  return key === undefined ? null : key.map(shown);
}

function shownRow(row: Row | undefined): unknown {
  if (row === undefined) return null;
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, shown(value)]));
}

function shownUpdate(update: Update): Record<string, unknown> {
  const { transaction } = update;
  const { incarnation, file, offset } = transaction.position;
  return {
    id: update.id,
    op: update.op.replace("-", "_"),
    table: update.table,
    key: shownKey(update.key),
    old_key: shownKey(update.oldKey),
    key_end: shownKey(update.keyEnd),
    before: shownRow(update.before),
    after: shownRow(update.after),
    transaction: transaction.id,
    position: `${incarnation}/${file}/${offset}`,
    index: update.index,
    ends_transaction: update.endsTransaction,
    committed_at_us: transaction.committedAtMicros ?? 0n,
    replayed: update.replayed,
    too_large: update.tooLarge,
    entered: update.entered,
    left: update.left,
    generation: update.generation,
  };
}

/** The application of one case. */
class Application implements Handler {
  readonly #calls = new Map<string, number>();
  readonly #hanging = new Set<() => void>();

  constructor(private readonly given: Case) {}

  resume(): void {
    for (const resume of this.#hanging) resume();
    this.#hanging.clear();
  }

  async onUpdate(update: Update, { shard, epoch, signal }: Flow): Promise<void> {
    print("update", { shard, epoch, ...shownUpdate(update) });
    const calls = (this.#calls.get(update.id) ?? 0) + 1;
    this.#calls.set(update.id, calls);
    const what = this.given.handler?.[update.id];
    if (what?.do === "exit") process.exit(EXITED);
    if (what?.do === "raise" && calls <= (what.times ?? Infinity)) throw new Error("the case asks for it");
    if (what?.do === "hang" && calls === 1) await this.#hang(signal);
  }

  async #hang(signal: AbortSignal): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#hanging.add(resolve);
      signal.addEventListener("abort", () => { reject(signal.reason as Error); }, { once: true });
    });
  }

  onAssigned({ shard, epoch, marker, ...rest }: Assignment): KeptMarker | undefined {
    const { move, rewound, acknowledged, generation } = rest;
    print("assigned", { shard, epoch, marker: markerText(marker), move, rewound, acknowledged, generation });
    const kept = this.given.have?.[shard];
    if (kept === undefined) return undefined;
    const have = Datamarker.fromBytes(Buffer.from(kept.marker, "base64"));
    return kept.move === undefined ? { have } : { have, move: BigInt(kept.move) };
  }

  onRevoked({ acknowledged }: { acknowledged: Datamarker | undefined }, { shard, epoch }: Flow): void {
    print("revoked", { shard, epoch, marker: markerText(acknowledged) });
  }

  onDatamarker(marker: Datamarker, { shard, epoch }: Flow): void {
    print("datamarker", { shard, epoch, marker: markerText(marker) });
  }

  onRollback(to: Datamarker, _cause: Error, { shard, epoch }: Flow): void {
    print("rolled_back", { shard, epoch, marker: markerText(to) });
  }

  onDataLoss(loss: Parameters<NonNullable<Handler["onDataLoss"]>>[0], { shard, epoch }: Flow): "continue" | "halt" {
    const { firstMissing, lastMissing, resume } = loss;
    const missing = { first_missing: firstMissing, last_missing: lastMissing, resume: markerText(resume) };
    print("data_loss", { shard, epoch, kind: loss.kind.replace("-", "_"), ...missing });
    return this.given.data_loss;
  }

  onReplay(replay: Parameters<NonNullable<Handler["onReplay"]>>[0], { shard, epoch }: Flow): void {
    if (replay.kind === "begin") print("replay_begin", { shard, epoch, latest: replay.latest });
    else print("replay_end", { shard, epoch });
  }

  onChunkEnd({ table, after, until, except, alone, rows }: ChunkEnd, { shard, epoch }: Flow): void {
    const keys = { after: shownKey(after), until: shownKey(until) };
    const lists = { except: except.map(shownKey), alone: alone.map(shownKey) };
    print("chunk_end", { shard, epoch, table, ...keys, ...lists, rows });
  }

  onScanEnd(end: Parameters<NonNullable<Handler["onScanEnd"]>>[0], { shard, epoch }: Flow): void {
    const { table, generation, rows } = end;
    print("scan_end", { shard, epoch, table, generation, rows });
  }

  onHalted({ updateId }: Halt, { shard, epoch }: Flow): void {
    print("error", { code: "halted", shard, epoch, update: updateId });
  }
}

function subscriberOf(given: Case, application: Application, signal: AbortSignal): Subscriber {
  const { tls } = given;
  const logger = { debug: console.error, info: console.error, warn: console.error, error: console.error };
  return new Subscriber({
    application: given.application,
    id: given.id,
    dial: given.second === undefined ? [given.dial] : [given.dial, given.second],
    handler: application,
    signal,
    tls: tls && { ca: tls.ca, cert: tls.cert, key: tls.key },
    publishers: tls && [tls.publisher],
    token: given.token,
    retry: {
      attempts: given.max_attempts,
      firstWaitMs: given.first_wait_ms,
      longestWaitMs: 10 * given.first_wait_ms,
    },
    credit: given.credit,
    maxFrame: given.max_frame,
    maxUpdate: given.max_body / 2,
    stateOnly: true,
    logger,
    onDisconnected: (_, { code }) => {
      if (code !== "unavailable") print("error", { code });
    },
  });
}

async function main(): Promise<void> {
  let application: Application | undefined;
  let stop = new AbortController();
  let running: Promise<void> | undefined;
  for await (const line of createInterface({ input: process.stdin })) {
    const given = JSON.parse(line) as Partial<Case> & { resume?: true; stop?: true };
    if (given.case !== undefined) {
      stop = new AbortController();
      application = new Application(given as Case);
      running = subscriberOf(given as Case, application, stop.signal).run();
    } else if (given.resume) application?.resume();
    else if (given.stop) {
      stop.abort();
      void running?.then(() => print("end")); // a handler that hangs ends after a later line
    }
  }
}

await main();
