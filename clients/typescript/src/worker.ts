/**
 * One epoch of a flow at work: takes what arrived, in order, and runs the application's callbacks on it.
 *
 *     [former epoch ended] onAssigned
 *     { onUpdate | onDatamarker | onDataLoss | onReplay | onChunkEnd | onScanEnd } onRevoked
 *
 * No update is acknowledged whose callback has not returned, or that the publisher has not stored in its place: a
 * datamarker is acknowledged after `onDatamarker`, which runs after every earlier callback has returned.
 */

import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";

import { type Body, parseBody } from "./body.js";
import type { Datamarker } from "./datamarker.js";
import { comparePositions } from "./datamarker.js";
import {
  asError,
  EpochRefused,
  headline,
  ParkRefused,
  PermanentError,
  ProtocolError,
  TransactionRolledBack,
} from "./errors.js";
import { FlowLog } from "./flowlog.js";
import { Gate } from "./gate.js";
import type { HandlerReport } from "./generated/wormhole/wire/v1/push_pb.js";
import type { Awaitable, Flow, Handler, KeptMarker } from "./handler.js";
import type { Settings } from "./options.js";
import type { Retry } from "./retry.js";
import { comparePlaces, placeOf, rowsOf, type UpdatePlace } from "./rowkey.js";
import type { Schema } from "./schema.js";
import { type Assigned, FailedReason, type Held, type Item, type Peer } from "./session.js";
import { type Batch, type Update, updatesOf } from "./update.js";
import { Watchdog } from "./watchdog.js";

/** Answers of one epoch of a flow. They are dropped once the stream or the epoch is over. */
export interface Port {
  readonly peer: Peer;
  schema(id: bigint): Schema;
  accept(credit: number, have: Datamarker | undefined, move: bigint): void;
  progress(number: bigint): void;
  /** Returns false if the stream or the epoch is over, so that the marker is not acknowledged. */
  ack(marker: Datamarker): boolean;
  release(marker: Datamarker | undefined): void;
  fail(reason: FailedReason, updateId: string, message: string, held?: Held): void;
  park(update: Update, place: UpdatePlace, error: string): void;
  decideLoss(proceed: boolean): void;
  /** The publisher broke the protocol: ends the stream. */
  refuse(error: ProtocolError): void;
}

/** Why an epoch ends. After `revoked` and `leaving` the flow is released: another subscriber waits for it. */
export type Ending = "revoked" | "leaving" | "lost" | "superseded";

const SLICE_MS = 20; // for so long callbacks of one flow may occupy the process
const LATEST_REFUSED =
  "the replay delivers only the last change of each key, and the option stateOnly is not set [latest-refused]. Next: " +
  "cancel the replay and begin it with --mode log; if the effects depend on a row's last state alone, set stateOnly";

/** The epoch ended while something was awaited. */
class EpochOver extends Error {}

/** A callback failed at an update, or (`undefined`) at none. */
class CallbackFailed extends Error {
  constructor(
    override readonly cause: Error,
    readonly update: Update | undefined,
    readonly together = 1,
    readonly last: Update | undefined = update,
  ) {
    super(cause.message);
  }
}

export class FlowWorker {
  readonly shard: string;
  readonly epoch: bigint;
  acknowledged: Datamarker | undefined;
  /** Settles when no callback of the epoch runs any more. */
  readonly ended: Promise<void>;
  #marker: Datamarker;
  #ending: Ending | undefined;
  #cause = "";
  /** Given up here: it only waits for its end. */
  #stopped = false;
  #notified = false;
  readonly #over = new AbortController();
  readonly #log: FlowLog;
  readonly #gate: Gate;
  readonly #watchdog: Watchdog;
  readonly #handler: Handler;
  #wake: () => void = () => undefined;
  #heldBack: Update | undefined;
  /** What the publisher answers to updates that are being parked, by id; `undefined`: the epoch is over. */
  readonly #answers = new Map<string, (refused: string | undefined) => void>();
  #sliceBegan = performance.now();
  readonly #figures = { updates: 0n, busyMs: 0, failures: 0, slowestMs: 0, slowest: "", skipped: 0, parked: 0 };
  #running: Update | undefined;
  #runningSince = 0;

  constructor(
    private readonly assigned: Assigned,
    private readonly settings: Settings,
    private readonly port: Port,
    private readonly retry: Retry,
    readonly credit: number,
    before: Promise<void> | undefined,
  ) {
    this.shard = assigned.frame.shard;
    this.epoch = assigned.frame.epoch;
    this.#marker = assigned.marker;
    this.#handler = settings.handler;
    this.#gate = new Gate(assigned);
    this.#log = new FlowLog(2 * credit);
    this.#watchdog = new Watchdog(settings.handlerTimeoutMs);
    this.ended = this.#run(before);
  }

  // --- called from outside ---

  feed(item: Item): void {
    if (this.#ending !== undefined || this.#stopped) return;
    this.#log.append(item);
    this.#wake();
  }

  /** Begins no new work. Running callbacks may end. The first reason stays. */
  end(ending: Ending, cause: string): void {
    if (this.#ending !== undefined) return;
    this.#ending = ending;
    this.#cause = cause;
    this.#over.abort();
    for (const answer of this.#answers.values()) answer(undefined);
    this.#wake();
  }

  /** Asks running callbacks to end at once. */
  abort(reason: Error): void {
    this.#watchdog.abort(reason);
  }

  parkAnswered(updateId: string, refused: string): void {
    this.#answers.get(updateId)?.(refused);
  }

  report(): Omit<HandlerReport, "$typeName"> {
    const { updates, busyMs, failures, slowest, slowestMs, skipped, parked } = this.#figures;
    this.#figures.slowest = "";
    this.#figures.slowestMs = 0;
    const running = this.#running;
    return {
      updates,
      busyS: busyMs / 1000,
      failures,
      slowestTable: slowest,
      slowestS: slowestMs / 1000,
      queuedBytes: BigInt(this.#log.waitingBytes),
      runningUpdate: running?.id ?? "",
      runningS: running === undefined ? 0 : (performance.now() - this.#runningSince) / 1000,
      skipped,
      parked,
    };
  }

  // --- the epoch ---

  async #run(before: Promise<void> | undefined): Promise<void> {
    await before;
    try {
      if (!this.#isOver()) await this.#open();
      while (!this.#isOver()) {
        const item = this.#stopped ? undefined : this.#log.take();
        if (item === undefined) await this.#rest();
        else await this.#workOrRecover(item);
      }
      await this.#close();
    } catch (error) {
      // A fault of this library: the publisher holds the flow.
      this.settings.logger.error(`${this.#name} broke inside the subscriber: ${asError(error).stack ?? ""}`);
      this.port.fail(FailedReason.HANDLER, "", `internal error of the subscriber: ${headline(asError(error))}`);
    } finally {
      this.#watchdog.close();
      this.#log.clear();
    }
  }

  async #rest(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (this.#isOver() || (!this.#stopped && this.#log.peek() !== undefined)) resolve();
    });
    this.#sliceBegan = performance.now();
  }

  async #open(): Promise<void> {
    const { frame, marker } = this.assigned;
    const { application, shard, epoch, rewound, move, acknowledged, generation } = frame;
    const { dataset, log } = this.port.peer;
    const assignment = {
      ...{ application, dataset, log, shard, epoch, marker, rewound, move, acknowledged, generation },
    };
    this.#notified = true;
    let kept: KeptMarker | undefined;
    const opened = await this.#insist(async () => {
      kept = await this.#call(() => this.#handler.onAssigned?.(assignment, this.#flow));
    });
    if (!opened || this.#isOver()) return;
    const have = this.#accepts(kept) ? kept?.have : undefined;
    if (have !== undefined) this.#marker = have;
    if (frame.rolledBack && !(await this.#undo(new TransactionRolledBack(frame.rolledBack)))) return;
    this.port.accept(this.credit, have, have === undefined ? 0n : (kept?.move ?? 0n));
  }

  /** Whether the application's own datamarker counts: not if the shard was moved after it was stored. */
  #accepts(kept: KeptMarker | undefined): boolean {
    if (kept === undefined) return false;
    const { move, rewound } = this.assigned.frame;
    const before = kept.move !== undefined && kept.move < move;
    const later = comparePositions(kept.have.order, this.assigned.marker.order) > 0;
    if (!before && !(later && rewound && (!move || (kept.move ?? 0n) < move))) return true;
    this.settings.logger.warn(`${this.#name} was set to ${this.#marker}: delivery begins there, not at ${kept.have}`);
    return false;
  }

  async #close(): Promise<void> {
    const releases = this.#ending === "revoked" || this.#ending === "leaving";
    if (releases) await this.#settle();
    if (this.#notified) {
      const revocation = { acknowledged: this.acknowledged, cause: this.#cause };
      await this.#attempt("onRevoked", () => this.#handler.onRevoked?.(revocation, this.#flow));
    }
    if (releases) this.port.release(this.acknowledged);
  }

  /** A datamarker without unfinished work before it is still acknowledged: the next subscriber repeats nothing. */
  async #settle(): Promise<void> {
    const item = this.#log.peek();
    if (this.#stopped || this.#log.unfinished || item?.kind !== "marker" || this.#heldBack !== undefined) return;
    const returned = await this.#attempt("onDatamarker", () => this.#handler.onDatamarker?.(item.marker, this.#flow));
    if (returned) this.#acknowledge(item.marker);
  }

  async #workOrRecover(item: Item): Promise<void> {
    try {
      await this.#work(item);
    } catch (thrown) {
      const error = asError(thrown);
      if (error instanceof EpochOver) return;
      if (error instanceof CallbackFailed) await this.#failed(error);
      else if (error instanceof ProtocolError) this.#breach(error);
      else throw error;
    }
  }

  async #work(item: Item): Promise<void> {
    if (item.kind !== "batch") await this.#releaseHeldBack();
    const handler = this.#handler;
    switch (item.kind) {
      case "batch":
        await this.#batch(item);
        break;
      case "marker":
        await this.#callOrFail(() => handler.onDatamarker?.(item.marker, this.#flow));
        this.#acknowledge(item.marker);
        break;
      case "replay":
        if (item.replay.kind === "begin" && item.replay.latest && !this.settings.stateOnly) {
          throw new CallbackFailed(new PermanentError(LATEST_REFUSED), undefined);
        }
        await this.#callOrFail(() => handler.onReplay?.(item.replay, this.#flow));
        break;
      case "loss":
        await this.#loss(item);
        break;
      case "chunk-end": {
        const parked = this.#gate.keys(item.end.table);
        if (!item.conclusive || parked === undefined) break;
        const end = { ...item.end, except: [...item.end.except, ...parked] };
        await this.#callOrFail(() => handler.onChunkEnd?.(end, this.#flow));
        break;
      }
      case "scan-end": {
        const { table, rows } = item;
        const { generation } = this.assigned.frame;
        const except = this.#gate.keys(table);
        if (except === undefined) break;
        await this.#callOrFail(() => handler.onScanEnd?.({ table, generation, except, rows }, this.#flow));
      }
    }
    const progress = this.#log.finish(item);
    if (progress !== undefined) this.port.progress(progress);
    await this.#breathe();
  }

  #acknowledge(marker: Datamarker): void {
    this.#marker = marker;
    this.#log.acknowledge();
    this.retry.reset();
    if (this.port.ack(marker)) this.acknowledged = marker;
  }

  async #loss(item: Item & { kind: "loss" }): Promise<void> {
    if (item.decided) return;
    const decision = await this.#callOrFail(() => this.#handler.onDataLoss?.(item.loss, this.#flow));
    item.decided = true;
    const proceed = decision === "continue";
    const what = proceed ? "continues without it" : "halts";
    this.settings.logger.warn(`${this.#name}: log is missing: ${item.loss.message}; it ${what}`);
    this.port.decideLoss(proceed);
  }

  // --- updates ---

  async #batch(item: Item & { kind: "batch" }): Promise<void> {
    const body = this.#parse(item);
    const updates = updatesOf(this.#batchOf(body, item.replayed));
    const held = this.#heldBack;
    this.#heldBack = undefined;
    if (held !== undefined) {
      const continues = body.txNumber.length > 0 && body.transactionId(0) === held.transaction.id;
      updates.unshift(held.detachedAs(!continues || body.txEnd[0] === 0));
    }
    const last = updates.at(-1);
    // Whether it ends its transaction is only known with the next batch.
    const heldBack = item.unfinished && last?.inUnfinished ? last.detachedAs(false) : undefined;
    if (heldBack !== undefined) updates.pop();
    await this.#deliver(updates);
    this.#heldBack = heldBack;
  }

  async #releaseHeldBack(): Promise<void> {
    const held = this.#heldBack;
    this.#heldBack = undefined;
    if (held !== undefined) await this.#deliver([held.detachedAs(true)]);
  }

  #parse(item: Item & { kind: "batch" }): Body {
    const body = parseBody(item.body);
    for (const id of body.schemaIds) this.port.schema(id);
    return body;
  }

  #batchOf(body: Body, replayed: boolean): Batch {
    const { generation } = this.assigned.frame;
    const schemaOf = (id: bigint) => this.port.schema(id);
    return { body, shard: this.shard, epoch: this.epoch, replayed, generation, schemaOf };
  }

  /** Processes updates one after the other. The gate decides on each when those before it are finished. */
  async #deliver(updates: readonly Update[]): Promise<void> {
    const { onUpdate } = this.#handler;
    let together: Update[] = [];
    for (const update of updates) {
      const verdict = this.#verdict(update);
      if (verdict === "call" && onUpdate === undefined && !this.#singly(update)) {
        together.push(update);
        continue;
      }
      await this.#deliverTogether(together);
      together = [];
      if (verdict === "skip") this.#skip(update);
      else if (verdict === "park") await this.#park(update, undefined);
      else if (onUpdate === undefined) await this.#deliverTogether([update]);
      else {
        // Not `await`ed unless needed: a promise for each update costs more than many a callback.
        const running = this.#begin(update, () => onUpdate.call(this.#handler, update, this.#flow));
        if (running !== undefined) await running;
        if (performance.now() - this.#sliceBegan > SLICE_MS) await this.#breathe();
      }
    }
    await this.#deliverTogether(together);
  }

  async #deliverTogether(updates: readonly Update[]): Promise<void> {
    const [first] = updates;
    if (first === undefined) return;
    const { onUpdates } = this.#handler;
    await this.#begin(first, () => onUpdates?.call(this.#handler, updates, this.#flow), updates);
  }

  /** Begins a callback. Returns `undefined` if it has returned at once. */
  #begin(update: Update, call: () => Awaitable<void>, all: readonly Update[] = [update]): Promise<void> | undefined {
    if (this.#isOver()) throw new EpochOver();
    this.#running = update;
    this.#runningSince = performance.now();
    let running: Awaitable<void>;
    try {
      running = call();
    } catch (error) {
      throw this.#failure(error, all);
    }
    if (running === undefined) {
      this.#returned(update, all.length);
      return undefined;
    }
    return this.#watchdog.watch(running).then(
      () => this.#returned(update, all.length),
      (error: unknown) => {
        throw this.#failure(error, all);
      },
    );
  }

  #failure(error: unknown, together: readonly Update[]): CallbackFailed {
    this.#running = undefined;
    return new CallbackFailed(asError(error), together[0], together.length, together.at(-1));
  }

  #returned(update: Update, count: number): void {
    const figures = this.#figures;
    const took = performance.now() - this.#runningSince;
    this.#running = undefined;
    figures.updates += BigInt(count);
    figures.busyMs += took;
    if (took > figures.slowestMs) {
      figures.slowestMs = took;
      figures.slowest = update.table;
    }
  }

  #verdict(update: Update): "call" | "skip" | "park" {
    try {
      return this.#gate.verdict(update);
    } catch (error) {
      throw new CallbackFailed(asError(error), update); // its row cannot be read
    }
  }

  /** Whether `onUpdates` gets this update alone, because one up to here fails. */
  #singly(update: Update): boolean {
    const until = this.retry.singlyUntil;
    if (until === undefined) return false;
    if (comparePlaces(placeOf(update), until) <= 0) return true;
    this.retry.singlyUntil = undefined;
    return false;
  }

  #skip(update: Update): void {
    this.#figures.skipped++;
    this.settings.logger.warn(`${this.#name}: update ${update.id} is skipped, as an operator asked`);
  }

  /** Has the publisher store an update in place of its callback. `error`: of its last attempt. */
  async #park(update: Update, error: Error | undefined): Promise<void> {
    if (this.#gate.stored(update)) return;
    if (this.#isOver()) throw new EpochOver();
    rowsOf(update); // later updates of a row that cannot be read could not be recognised
    const { id } = update;
    const refused = await new Promise<string | undefined>((resolve) => {
      this.#answers.set(id, resolve);
      this.port.park(update, placeOf(update), error === undefined ? "" : headline(error));
    });
    this.#answers.delete(id);
    if (refused === undefined) throw new EpochOver();
    if (refused) throw new CallbackFailed(new ParkRefused(refused), update);
    this.#gate.parked(update);
    this.#figures.parked++;
    const what = `${this.#name}: update ${id} is parked`;
    if (error === undefined) this.settings.logger.debug(`${what}: an earlier update of its row is parked`);
    else this.settings.logger.warn(`${what}: its handler gave up: ${headline(error)}`);
  }

  // --- failures ---

  /** A callback failed: the flow is rolled back to the last acknowledged datamarker, or halts. */
  async #failed(failed: CallbackFailed): Promise<void> {
    const { cause, update } = failed;
    if (this.#isOver()) return;
    if (cause instanceof ParkRefused || (cause instanceof PermanentError && update === undefined)) {
      return this.#halt(cause, update);
    }
    if (!this.#count(cause, update)) {
      if (update === undefined || !this.#gate.parks) return this.#halt(cause, update);
      if (!(await this.#putAside(failed, update))) return;
    }
    const waitMs = this.retry.waitMs();
    this.#heldBack = undefined;
    const whole = this.#log.rollback();
    if (!(await this.#undo(cause, update))) return;
    await this.#pause(waitMs);
    if (whole || this.#isOver()) return;
    this.#stopped = true;
    const message = `rolled back to ${this.#marker}, and what follows is more than is held here; ${headline(cause)}`;
    this.port.fail(FailedReason.RESEND, update?.id ?? "", message);
  }

  /** Retries are exhausted. Of several updates the failing one is looked for; a single one is parked. */
  async #putAside(failed: CallbackFailed, update: Update): Promise<boolean> {
    if (failed.together > 1 && failed.last !== undefined) {
      this.retry.singlyUntil = placeOf(failed.last);
      this.settings.logger.warn(`${this.#name}: onUpdates failed with ${failed.together} updates: now one by one`);
    } else {
      try {
        await this.#park(update, failed.cause);
      } catch (error) {
        if (!(error instanceof EpochOver)) await this.#halt(causeOf(error), update);
        return false;
      }
    }
    this.retry.reset();
    return true;
  }

  /** Has the application return to the datamarker. Returns whether the flow continues. */
  #undo(cause: Error, update?: Update): Promise<boolean> {
    const to = this.#marker;
    return this.#insist(() => this.#call(() => this.#handler.onRollback?.(to, cause, this.#flow)), update);
  }

  /** Calls until it returns. Returns false if the epoch ended or the flow halted meanwhile. */
  async #insist(call: () => Promise<unknown>, update?: Update): Promise<boolean> {
    while (!this.#isOver()) {
      try {
        await call();
        return true;
      } catch (thrown) {
        const error = asError(thrown);
        if (error instanceof EpochRefused && error.heldEpoch >= this.epoch) {
          this.#refuseEpoch(error);
          return false;
        }
        if (error instanceof PermanentError || !this.#count(error, undefined)) {
          await this.#halt(error, update);
          return false;
        }
        await this.#pause(this.retry.waitMs());
      }
    }
    return false;
  }

  /** Counts a failure. Returns whether another try follows. */
  #count(error: Error, update: Update | undefined): boolean {
    const { retry } = this;
    this.#figures.failures++;
    const again = retry.failed(placeIfReadable(update)) && !(error instanceof PermanentError);
    const at = update === undefined ? "" : ` at update ${update.id}`;
    const attempt = `attempt ${retry.failures} of ${retry.policy.attempts} failed`;
    const trace = retry.failures === 1 || !again ? `\n${error.stack ?? ""}` : "";
    const what = `${headline(error)}${at}; ${this.#name}: ${attempt}${again ? "" : ", the last one"}`;
    this.settings.logger.warn(`${what}${trace}`);
    return again;
  }

  async #halt(cause: Error, update: Update | undefined): Promise<void> {
    const attempts = this.retry.failures;
    const updateId = update?.id ?? "";
    this.#stopped = true;
    this.retry.reset();
    const at = updateId && ` at update ${updateId}`;
    const message = `shard ${this.shard} is halted${at} after ${attempts} attempts: ${headline(cause)}`;
    this.port.fail(FailedReason.HANDLER, updateId, message);
    const next = "mend the handler or the data, then restart this subscriber";
    this.settings.logger.error(`${message}. Next: ${next}; delivery begins again after ${this.#marker}`);
    const halt = { updateId, attempts, marker: this.#marker, cause };
    await this.#attempt("onHalted", () => this.#handler.onHalted?.(halt, this.#flow));
  }

  #refuseEpoch({ heldEpoch }: EpochRefused): void {
    this.#stopped = true;
    const message = `epoch ${this.epoch} of shard ${this.shard} is refused: the application holds epoch ${heldEpoch}`;
    this.settings.logger.warn(message);
    this.port.fail(FailedReason.STALE_EPOCH, "", message, { epoch: heldEpoch, by: "", contested: false });
  }

  #breach(error: ProtocolError): void {
    this.#stopped = true;
    this.port.refuse(error);
  }

  // --- callbacks ---

  get #flow(): Flow {
    return { shard: this.shard, epoch: this.epoch, signal: this.#watchdog.signal };
  }

  get #name(): string {
    return `flow ${this.shard} epoch ${this.epoch}`;
  }

  #isOver(): boolean {
    return this.#ending !== undefined;
  }

  async #call<T>(call: () => Awaitable<T> | undefined): Promise<T | undefined> {
    const running = call();
    return isPromise(running) ? this.#watchdog.watch(running) : running;
  }

  async #callOrFail<T>(call: () => Awaitable<T> | undefined): Promise<T | undefined> {
    try {
      return await this.#call(call);
    } catch (error) {
      throw new CallbackFailed(asError(error), undefined);
    }
  }

  /** Runs a callback whose failure is only logged. Returns whether it returned. */
  async #attempt(name: string, call: () => Awaitable<void> | undefined): Promise<boolean> {
    try {
      await this.#call(call);
      return true;
    } catch (error) {
      this.settings.logger.error(`${headline(asError(error))}; ${name} of ${this.#name} failed`);
      return false;
    }
  }

  /** Gives the process to others if callbacks have occupied it for long. */
  async #breathe(): Promise<void> {
    if (performance.now() - this.#sliceBegan < SLICE_MS) return;
    await nextTurn();
    this.#sliceBegan = performance.now();
  }

  /** Waits, but not beyond the epoch's end. */
  async #pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.#over.signal }).catch(() => undefined);
  }
}

function causeOf(error: unknown): Error {
  return error instanceof CallbackFailed ? error.cause : asError(error);
}

function isPromise<T>(value: Awaitable<T> | undefined): value is PromiseLike<T> {
  return typeof value === "object" && value !== null && "then" in value;
}

function placeIfReadable(update: Update | undefined): UpdatePlace | undefined {
  return update === undefined ? undefined : placeOf(update);
}
