/**
 * The subscriber of the kill -9 test (tests/system/test_typescript_client.py): writes a line for each thing that it is
 * told. A line is written with one `write` before the callback returns, so it survives the kill.
 */

import { openSync, writeSync } from "node:fs";
import { crc32 } from "node:zlib";

import type { Assignment, Datamarker, Flow, Handler, Revocation, Update } from "../../src/index.js";
import { Subscriber } from "../../src/index.js";

interface Given {
  readonly application: string;
  readonly log: string;
  readonly options: { readonly id: string; readonly dial: readonly string[] };
}

const given = JSON.parse(process.argv[2] ?? "") as Given;
const log = openSync(given.log, "a");

/** The time is that of the machine, by which lines of several processes are compared. */
function write(kind: string, { shard, epoch }: Pick<Flow, "shard" | "epoch">, ...fields: unknown[]): void {
  writeSync(log, `${[kind, Number(process.hrtime.bigint()) / 1e9, shard, epoch, ...fields].map(String).join("\t")}\n`);
}

function hex(bytes: unknown): string {
  if (!(bytes instanceof Uint8Array)) throw new Error(`${String(bytes)} is no key of this datastore`);
  return Buffer.from(bytes).toString("hex");
}

class Recorder implements Handler {
  onAssigned({ shard, epoch, marker }: Assignment): undefined {
    write("A", { shard, epoch }, marker, marker.delivered, "");
  }

  onRevoked({ cause }: Revocation, flow: Flow): void {
    write("R", flow, cause);
  }

  onDatamarker(marker: Datamarker, flow: Flow): void {
    write("M", flow, marker, marker.delivered);
  }

  async onUpdate(update: Update, flow: Flow): Promise<void> {
    await Promise.resolve();
    const [, sequence, index] = update.id.split(":");
    const { position, committedAtMicros } = update.transaction;
    const place = `${position.incarnation}/${position.file}/${position.offset}`;
    const value = update.after?.value;
    const digest = value instanceof Uint8Array ? `${value.length}:${checksum(value)}` : "";
    const content = [update.op, update.table, hex(update.key[0]), digest];
    const about = [sequence, index, Number(update.endsTransaction), place, committedAtMicros, Number(update.replayed)];
    write("U", flow, ...about, ...content);
  }
}

function checksum(value: Uint8Array): string {
  return crc32(value).toString(16).padStart(8, "0");
}

const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
const { application, options } = given;
await new Subscriber({ application, ...options, handler: new Recorder(), signal: stop.signal }).run();
