/** Which epoch of which shard is at work in this process, over all streams. */

import { type Account, Budget } from "./budget.js";
import type { ProtocolError } from "./errors.js";
import type { Settings } from "./options.js";
import { Retry } from "./retry.js";
import { type Assigned, differ, FailedReason, type Held, type Peer } from "./session.js";
import { FlowWorker, type Port } from "./worker.js";

const LEAST_CREDIT = 64 << 10; // less would cost a round trip every few updates
const KEPT_IDLE = 4096; // shards without a flow here whose epochs are remembered

interface Shard {
  readonly retry: Retry;
  /** The highest epoch so far, and the publisher that assigned it. */
  epoch: bigint;
  holder: Peer | undefined;
  worker: FlowWorker | undefined;
  port: Port | undefined;
}

export class Shards {
  readonly #shards = new Map<string, Shard>();
  readonly #workers = new Set<FlowWorker>();
  readonly #state: Budget;
  readonly #large: Budget;
  #granted = 0;
  #leaving = false;

  constructor(private readonly settings: Settings) {
    this.#state = new Budget(settings.maxState, "flows, schemas, datamarkers and lists");
    this.#large = new Budget(4 * settings.maxUpdate, "batches above their credit");
  }

  /** The shards that this process has, each with its epoch. */
  get assigned(): ReadonlyMap<string, bigint> {
    return new Map([...this.#workers].map(({ shard, epoch }) => [shard, epoch]));
  }

  /** Opens the accounts of a stream of `peer`. `end` ends it if another one needs its memory. */
  accounts(peer: Peer, end: (error: ProtocolError) => void): { state: Account; large: Account } {
    const owner = () => peer.owner || peer.name;
    return { state: this.#state.open(owner, end), large: this.#large.open(owner, end) };
  }

  /** Takes a flow. `undefined`: it was refused, by an answer through the port. */
  assign(port: Port, assigned: Assigned): FlowWorker | undefined {
    const { shard: name, epoch } = assigned.frame;
    const shard = this.#shards.get(name) ?? newShard(this.settings);
    this.#shards.delete(name);
    this.#shards.set(name, shard); // the one that was assigned last is at the end
    const held = refusalOf(shard, port.peer, assigned);
    if (held !== undefined) {
      const by = held.by && `, assigned by publisher ${held.by}`;
      const message = `epoch ${epoch} of shard ${name} is refused: it is held here in epoch ${held.epoch}${by}`;
      this.settings.logger.warn(`publisher ${port.peer.name}: ${message}`);
      port.fail(FailedReason.STALE_EPOCH, "", message, held);
      return undefined;
    }
    const former = { holder: shard.holder, worker: shard.worker, port: shard.port };
    shard.holder = port.peer;
    shard.epoch = epoch;
    if (this.#leaving) {
      void (former.worker?.ended ?? Promise.resolve()).then(() => {
        port.release(undefined);
      });
      return undefined;
    }
    former.worker?.end("superseded", `epoch ${epoch} was assigned`);
    if (former.worker && former.holder && differ(port.peer, former.holder)) {
      // Otherwise it would continue to send updates that this process ignores.
      const message = `shard ${name} was taken by publisher ${port.peer.name} in epoch ${epoch}`;
      this.settings.logger.error(`publisher ${former.holder.name} loses its flow: ${message}`);
      former.port?.fail(FailedReason.STALE_EPOCH, "", message, { epoch, by: port.peer.name, contested: true });
    }
    return this.#start(shard, port, assigned, former.worker?.ended);
  }

  /** Begins no callback, waits for those that run, and releases every flow, for at most `timeoutMs`. */
  async leave(timeoutMs: number): Promise<void> {
    this.#leaving = true;
    for (const worker of this.#workers) worker.end("leaving", "this subscriber leaves");
    await this.#settled(timeoutMs);
    for (const worker of this.#workers) {
      this.settings.logger.error(`flow ${worker.shard} did not end within ${timeoutMs} ms: it is aborted`);
      worker.abort(new Error("the subscriber stops"));
    }
    await this.#settled(1000);
  }

  #start(shard: Shard, port: Port, assigned: Assigned, before: Promise<void> | undefined): FlowWorker {
    const credit = this.#credit();
    this.#granted += credit;
    const worker = new FlowWorker(assigned, this.settings, port, shard.retry, credit, before);
    shard.worker = worker;
    shard.port = port;
    this.#workers.add(worker);
    void worker.ended.then(() => {
      this.#workers.delete(worker);
      this.#granted -= credit;
      if (shard.worker === worker) shard.worker = shard.port = undefined;
    });
    this.#forgetIdle();
    return worker;
  }

  async #settled(timeoutMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, timeoutMs)));
    await Promise.race([late, Promise.all([...this.#workers].map((worker) => worker.ended))]);
    clearTimeout(timer);
  }

  /** Half of the credit that remains, so that a later flow always gets some. */
  #credit(): number {
    const left = this.settings.buffer - this.#granted;
    return Math.min(this.settings.credit, Math.max(LEAST_CREDIT, Math.floor(left / 2)));
  }

  #forgetIdle(): void {
    if (this.#shards.size - this.#workers.size <= KEPT_IDLE) return;
    const idle = [...this.#shards].filter(([, shard]) => shard.worker === undefined);
    for (const [name] of idle.slice(0, idle.length - KEPT_IDLE / 2)) this.#shards.delete(name);
  }
}

function newShard({ retry }: Settings): Shard {
  return { retry: new Retry(retry), epoch: 0n, holder: undefined, worker: undefined, port: undefined };
}

/**
 * Why `peer` may not have the shard. The higher epoch wins. In the same epoch the first of two publishers keeps it, and
 * also against one that yields: two that do not know of each other would otherwise take it from each other without end.
 */
function refusalOf({ epoch, holder }: Shard, peer: Peer, { frame }: Assigned): Held | undefined {
  const other = holder !== undefined && differ(peer, holder);
  const contested = other && holder.connected;
  const stale = frame.epoch < epoch || (frame.epoch === epoch && other);
  if (!stale && !(frame.yields && contested)) return undefined;
  return { epoch, by: holder?.name ?? "", contested };
}
