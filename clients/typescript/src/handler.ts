/** What an application implements, and what it is given. */

import type { Datamarker } from "./datamarker.js";
import type { Update } from "./update.js";
import type { Value } from "./values.js";

/** The epoch of a shard that a callback runs in. */
export interface Flow {
  readonly shard: string;
  /** A fencing token: it rises whenever the shard's owner, its subscriber or its position changes. */
  readonly epoch: bigint;
  /**
   * Aborted when the callback has run for `handlerTimeoutMs`, or when the process has to end. The callback has to stop
   * then: nothing else of the shard begins before it has ended.
   */
  readonly signal: AbortSignal;
}

/** A shard that this process has from now on. */
export interface Assignment {
  readonly application: string;
  readonly dataset: string;
  readonly log: string;
  readonly shard: string;
  readonly epoch: bigint;
  /** The stored datamarker: delivery begins here. */
  readonly marker: Datamarker;
  /** The marker was set back, and nothing acknowledged since is stored: a later datamarker is not accepted. */
  readonly rewound: boolean;
  /** The number of the marker's last move; store it with your own datamarker. */
  readonly move: bigint;
  /** The marker was acknowledged or moved before: an application without a datamarker of its own lost its state. */
  readonly acknowledged: boolean;
  /** The number of the last backfill that was asked for the shard; 0: none was. */
  readonly generation: bigint;
}

/** The datamarker that an application stores with its state, with the move that it stored beside it. */
export interface KeptMarker {
  readonly have: Datamarker;
  /** Left out: the application stores none. */
  readonly move?: bigint;
}

/** The shard is not this process's any more; `acknowledged` is the last datamarker of the epoch. */
export interface Revocation {
  readonly acknowledged: Datamarker | undefined;
  readonly cause: string;
}

/** A range that the log does not hold any more. Positions are those of the datastore, inclusive, empty if not known. */
export interface DataLoss {
  readonly kind: "purged" | "not-logged" | "diverged";
  readonly firstMissing: string;
  readonly lastMissing: string;
  /** Where delivery continues if the application decides to. */
  readonly resume: Datamarker | undefined;
  readonly message: string;
}

/** A replay begins or ends here. `latest`: of the changes of a key it has only the last one. */
export type Replay = { readonly kind: "begin"; readonly latest: boolean } | { readonly kind: "end" };

export type Key = readonly Value[];

/**
 * A backfill has sent every row of a range of keys. A row that the application holds with a key of the range, and did
 * not receive in this generation, does not exist any more, unless its key is in `except`.
 */
export interface ChunkEnd {
  readonly table: string;
  readonly generation: bigint;
  /** Names of the columns of the key. */
  readonly columns: readonly string[];
  /** Exclusive; `undefined`: from the table's first key on. */
  readonly after: Key | undefined;
  /** Inclusive; `undefined`: to the table's last key. */
  readonly until: Key | undefined;
  /** If it is not empty, the range is these keys alone. */
  readonly alone: readonly Key[];
  readonly except: readonly Key[];
  /** How many rows were sent for the range. */
  readonly rows: bigint;
}

/**
 * A backfill has sent every row of a table in this shard. A row that the application holds with an earlier generation
 * does not exist any more, unless its key is in `except`.
 */
export interface ScanEnd {
  readonly table: string;
  readonly generation: bigint;
  readonly except: readonly Key[];
  readonly rows: bigint;
}

/** A shard whose retries are exhausted. It is halted until this process restarts; others continue. */
export interface Halt {
  /** The update whose callback failed; empty if it was another callback. */
  readonly updateId: string;
  readonly attempts: number;
  /** The last acknowledged datamarker, from which delivery begins again. */
  readonly marker: Datamarker;
  readonly cause: Error;
}

export type Awaitable<T> = T | PromiseLike<T>;

/**
 * The callbacks of an application. All but one of {@link onUpdate} and {@link onUpdates} are optional.
 *
 * Callbacks of one shard never overlap; those of different shards may. To throw is to fail: the shard is rolled back to
 * its last acknowledged datamarker, and after a wait the updates since then are delivered again. When the retries are
 * exhausted the update is parked, or the shard halts, as the publisher is configured.
 */
export interface Handler {
  /** Processes an update. To return means that it is processed. */
  onUpdate?(update: Update, flow: Flow): Awaitable<void>;
  /** Called in place of {@link onUpdate} with several updates of a shard, in order. */
  onUpdates?(updates: readonly Update[], flow: Flow): Awaitable<void>;
  /**
   * The shard is this process's. An application that stores datamarkers with its state returns its datamarker, and
   * delivery begins there, unless the shard was moved since.
   */
  onAssigned?(assignment: Assignment, flow: Flow): Awaitable<KeptMarker | undefined>;
  /** No callback of the epoch follows. */
  onRevoked?(revocation: Revocation, flow: Flow): Awaitable<void>;
  /** Everything before the datamarker is processed. It is acknowledged when this returns: make work durable here. */
  onDatamarker?(marker: Datamarker, flow: Flow): Awaitable<void>;
  /** Updates after `to` are delivered again: discard the later work that is not durable. */
  onRollback?(to: Datamarker, cause: Error, flow: Flow): Awaitable<void>;
  /** The log lost a range. Without this callback the shard halts. */
  onDataLoss?(loss: DataLoss, flow: Flow): Awaitable<"continue" | "halt">;
  onReplay?(replay: Replay, flow: Flow): Awaitable<void>;
  onChunkEnd?(end: ChunkEnd, flow: Flow): Awaitable<void>;
  onScanEnd?(end: ScanEnd, flow: Flow): Awaitable<void>;
  /** Meant for an alarm. What it throws is only logged. */
  onHalted?(halt: Halt, flow: Flow): Awaitable<void>;
}
