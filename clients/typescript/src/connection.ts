/** One stream joined to the flows that it feeds. Bytes in, bytes out; the dialler carries them. */

import type { Settings } from "./options.js";
import type { ProtocolError } from "./errors.js";
import { type Assigned, type Event, GoodbyeReason, type Peer, type Refusal, Session } from "./session.js";
import type { Shards } from "./shards.js";
import type { FlowWorker, Port } from "./worker.js";

export class Connection {
  readonly session: Session;
  readonly #workers = new Map<number, FlowWorker>();

  /**
   * `output`: called when {@link takeOutput} has something, or the stream has to end; `refuses`, `expected`: see the
   * session.
   */
  constructor(
    address: string,
    private readonly settings: Settings,
    private readonly shards: Shards,
    private readonly output: () => void,
    refuses: (dataset: string) => Refusal | undefined,
    expected: string,
  ) {
    const peer: Peer = { name: address, owner: "", dataset: "", log: "", connected: true };
    const { state, large } = shards.accounts(peer, (error) => this.refuse(error));
    const { application, id: subscriber, maxFrame, maxUpdate, handler } = settings;
    const takesRanges = handler.onChunkEnd !== undefined;
    const options = { application, subscriber, takesRanges, maxFrame, maxBody: 2 * maxUpdate };
    this.session = new Session({ ...options, state, large, peer, refuses, expected }, performance.now());
  }

  receive(data: Uint8Array): void {
    for (const event of this.session.receive(data, performance.now())) this.#handle(event);
    if (this.session.hasOutput || this.session.closed) this.output();
  }

  tick(): void {
    for (const event of this.session.tick(performance.now())) this.#handle(event);
    this.output();
  }

  takeOutput(): Buffer | undefined {
    const now = performance.now();
    if (this.session.reportDue(now)) {
      for (const [flow, worker] of this.#workers) {
        if (this.session.has(flow, worker.epoch)) this.session.report(flow, worker.report());
      }
    }
    return this.session.takeOutput(now);
  }

  refuse(error: ProtocolError): void {
    if (this.session.closed) return;
    this.#handle(this.session.refuse(error));
    this.output();
  }

  /** Every flow was released. */
  leave(): void {
    if (this.session.closed) return;
    this.session.goodbye(GoodbyeReason.LEAVING, "this subscriber leaves");
    this.output();
  }

  /** The stream ended: running callbacks finish, everything else of its flows is dropped. */
  lost(cause: string): void {
    this.session.end();
    for (const worker of this.#workers.values()) worker.end("lost", cause);
    this.#workers.clear();
  }

  #handle(event: Event): void {
    const { name } = this.session.peer;
    switch (event.kind) {
      case "welcomed":
        this.settings.logger.info(`publisher ${name} is connected`);
        return;
      case "assigned":
        this.#assign(event.assigned);
        return;
      case "item":
        this.#workers.get(event.flow)?.feed(event.item);
        return;
      case "revoked": {
        const worker = this.#workers.get(event.flow);
        this.#workers.delete(event.flow);
        worker?.end("revoked", event.cause);
        return;
      }
      case "parked":
        this.#workers.get(event.flow)?.parkAnswered(event.updateId, event.refused);
        return;
      case "closed":
        this.settings.logger[event.expected ? "info" : "warn"](`stream of ${name} ends: ${event.cause}`);
        this.lost(event.cause);
    }
  }

  #assign(assigned: Assigned): void {
    const { flow, frame } = assigned;
    const worker = this.shards.assign(this.#port(flow, frame.epoch), assigned);
    if (worker === undefined) return;
    this.#workers.set(flow, worker);
    void worker.ended.then(() => {
      if (this.#workers.get(flow) === worker) this.#workers.delete(flow);
    });
  }

  #port(flow: number, epoch: bigint): Port {
    const { session } = this;
    const answer = (send: () => void): boolean => {
      if (!session.has(flow, epoch)) return false;
      send();
      this.output();
      return true;
    };
    return {
      peer: session.peer,
      schema: (id) => session.schema(id),
      accept: (credit, have, move) => answer(() => { session.accept(flow, credit, have, move); }),
      progress: (number) => answer(() => { session.progress(flow, number); }),
      ack: (marker) => answer(() => { session.ack(flow, marker); }),
      release: (marker) => answer(() => { session.release(flow, marker); }),
      fail: (...failed) => answer(() => { session.fail(flow, ...failed); }),
      park: (...parked) => answer(() => { session.park(flow, ...parked); }),
      decideLoss: (proceed) => answer(() => { session.decideLoss(flow, proceed); }),
      refuse: (error) => answer(() => { this.refuse(error); }),
    };
  }
}
