/** Dials one publisher (`wormhole.wire.v1.Publisher/Attach`), one connection after the other. */

import { setTimeout as sleep } from "node:timers/promises";

import { Client, type ClientDuplexStream, Metadata, type ServiceError, status } from "@grpc/grpc-js";

import { Connection } from "./connection.js";
import { asError, StreamBroken, WormholeError } from "./errors.js";
import type { Settings } from "./options.js";
import type { Shards } from "./shards.js";
import { withoutProcess } from "./session.js";
import { trust } from "./tls.js";

const METHOD = "/wormhole.wire.v1.Publisher/Attach";
const CLOSE_MS = 1000; // how long a publisher may take to end a stream after the goodbye
const FIRST_MS = 50;
const LONGEST_MS = 5000;
const STEADY_MS = 10_000;
const KEPT_MS = 30_000; // how long an address belongs to the publisher that was connected there last
const LONGEST_TIMER_MS = 0x7fff_ffff;

export class Dialler {
  #stream: Stream | undefined;
  #failures = 0;
  /** Which publisher was connected last, and until when. Behind a balancer of several another one may answer. */
  #met = { publisher: "", untilMs: -Infinity };

  constructor(
    private readonly address: string,
    private readonly settings: Settings,
    private readonly shards: Shards,
    private readonly stopped: AbortSignal,
  ) {}

  /** Dials until the signal is aborted. */
  async run(): Promise<void> {
    let logged = "";
    while (!this.#isStopped()) {
      const began = performance.now();
      let welcomed = false;
      try {
        welcomed = await this.#connect();
        logged = "";
      } catch (error) {
        const broken = brokenBy(error, this.address);
        if (this.#isStopped()) return;
        if (broken.line !== logged) {
          this.settings.logger.warn(`publisher at ${this.address}: ${broken.line}; it is dialled again`);
        }
        logged = broken.line;
        this.settings.onDisconnected?.(this.address, broken);
      }
      await this.#pause(welcomed ? performance.now() - began : 0);
    }
  }

  /** Says goodbye. Every flow was released. */
  leave(): void {
    this.#stream?.leave();
  }

  #isStopped(): boolean {
    return this.stopped.aborted;
  }

  /** Waits longer after each connection that did not last. Waits differ, so that reconnects are spread. */
  async #pause(lastedMs: number): Promise<void> {
    this.#failures = lastedMs >= STEADY_MS ? 0 : this.#failures + 1;
    const longest = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(this.#failures, 20));
    await sleep(longest * (0.5 + Math.random() / 2), undefined, { signal: this.stopped }).catch(() => undefined);
  }

  /** One connection. Returns whether the publisher was accepted. */
  async #connect(): Promise<boolean> {
    const { maxFrame } = this.settings;
    const trusted = await trust(this.settings);
    const metadata = await this.#metadata();
    if (this.#isStopped()) return false;
    const client = new Client(this.address, trusted.credentials, {
      "grpc.max_receive_message_length": 2 * maxFrame, // a longer one is refused with a goodbye that says why
      "grpc.max_send_message_length": -1,
      "grpc.use_local_subchannel_pool": 1, // each connection is a new one
      "grpc.enable_http_proxy": 0,
      "grpc.enable_retries": 0,
      "grpc.service_config_disable_resolution": 1,
      "grpc-node.flow_control_window": 2 * maxFrame,
    });
    const same = (data: Buffer): Buffer => data;
    const stream = new Stream(client.makeBidiStreamRequest(METHOD, same, same, metadata));
    try {
      const { address, settings, shards } = this;
      const refuses = trusted.refuses.bind(trusted);
      const { publisher, untilMs } = this.#met;
      const expected = performance.now() - untilMs < KEPT_MS ? publisher : "";
      const output = (): void => stream.schedule();
      const { session } = stream.join(new Connection(address, settings, shards, output, refuses, expected));
      this.#stream = stream;
      const failure = await stream.ended;
      if (session.refused !== undefined) throw session.refused;
      if (session.welcomed) {
        this.#met = { publisher: session.left ? "" : withoutProcess(session.peer.name), untilMs: performance.now() };
      }
      if (failure !== undefined && !this.#isStopped()) {
        if (!session.welcomed) throw failure;
        settings.logger.warn(`the connection to publisher ${session.peer.name} is lost: ${failure.message}`);
      }
      return session.welcomed;
    } finally {
      this.#stream = undefined;
      stream.close();
      client.close();
    }
  }

  async #metadata(): Promise<Metadata> {
    const { application, id, instance, weight, token } = this.settings;
    const metadata = new Metadata();
    metadata.set("wormhole-application-bin", Buffer.from(application));
    metadata.set("wormhole-subscriber-bin", Buffer.from(id));
    metadata.set("wormhole-instance", instance);
    metadata.set("wormhole-weight", String(weight));
    if (token !== undefined) metadata.set("wormhole-token", typeof token === "string" ? token : await token());
    return metadata;
  }
}

/** Carries the bytes of one connection, and the time. */
class Stream {
  /** Settles when the call is over; with the error, if it failed. */
  readonly ended: Promise<Error | undefined>;
  #connection: Connection | undefined;
  #writing: number | undefined;
  #scheduled = false;
  #closing: NodeJS.Timeout | undefined;
  #timer: NodeJS.Timeout | undefined;
  #due = Infinity;

  constructor(private readonly call: ClientDuplexStream<Buffer, Buffer>) {
    this.ended = new Promise<Error | undefined>((resolve) => {
      call.on("error", resolve);
      call.on("end", () => resolve(undefined));
    });
  }

  join(connection: Connection): Connection {
    this.#connection = connection;
    this.call.on("data", (data: Buffer) => {
      connection.receive(data);
      if (connection.session.deadline < this.#due) this.#arm(connection); // hello says how often to speak
    });
    this.#arm(connection);
    return connection;
  }

  leave(): void {
    // Nothing may be said to a publisher that has not said hello.
    if (this.#connection?.session.welcomed) this.#connection.leave();
    else this.call.cancel();
  }

  close(): void {
    this.#connection?.lost("the connection ended");
    clearTimeout(this.#timer);
    clearTimeout(this.#closing);
    this.call.cancel();
  }

  /** What several callbacks of one turn have to say becomes one message. */
  schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#writing !== undefined) return; // frames wait until the publisher reads
    const data = this.#connection?.takeOutput();
    if (data !== undefined) {
      this.#writing = performance.now();
      this.call.write(data, () => {
        this.#writing = undefined;
        this.schedule();
      });
    } else if (this.#connection?.session.closed && this.#closing === undefined) {
      this.call.end();
      this.#closing = setTimeout(() => this.call.cancel(), CLOSE_MS);
    }
  }

  #arm(connection: Connection): void {
    const { session } = connection;
    if (session.closed) return;
    clearTimeout(this.#timer);
    this.#due = session.deadline;
    const waitMs = Math.min(LONGEST_TIMER_MS, Math.max(1, this.#due - performance.now()));
    this.#timer = setTimeout(() => {
      const unreadMs = this.#writing === undefined ? 0 : performance.now() - this.#writing;
      if (unreadMs > session.silenceMs) this.call.cancel();
      else {
        connection.tick();
        this.#arm(connection);
      }
    }, waitMs);
  }
}

/** Why a connection was not made: what the publisher reported, or what gRPC found. */
function brokenBy(thrown: unknown, address: string): StreamBroken {
  const error = asError(thrown);
  if (error instanceof WormholeError) return new StreamBroken(error.message, error.code, error.hint);
  const { code, details = "", metadata } = error as Partial<ServiceError>;
  if (code === undefined) return new StreamBroken(error.message);
  const [problem] = metadata?.get("wormhole-code") ?? [];
  const [next] = metadata?.get("wormhole-hint-bin") ?? [];
  if (problem !== undefined) {
    const hint = String(next ?? "");
    const text = withoutEnd(withoutEnd(details, `. Next: ${hint.split(/\s+/).join(" ")}`), ` [${problem.toString()}]`);
    return new StreamBroken(text, String(problem), hint);
  }
  const hint = "check that the publisher runs, serves this application, and listens there (`attach_listen`)";
  return new StreamBroken(`${address} cannot be reached: ${details}`, status[code].toLowerCase(), hint);
}

function withoutEnd(text: string, end: string): string {
  return text.endsWith(end) ? text.slice(0, -end.length) : text;
}
