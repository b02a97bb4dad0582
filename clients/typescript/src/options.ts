/** How a subscriber is configured. */

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

import { ConfigError, type StreamBroken } from "./errors.js";
import type { Handler } from "./handler.js";

/** Tries of a failing callback, and the waits between them. */
export interface RetryPolicy {
  /** Calls of one callback, the first one counted. */
  readonly attempts: number;
  /** The wait after the first failure. It doubles with each further one, and is shortened by up to half at random. */
  readonly firstWaitMs: number;
  readonly longestWaitMs: number;
}

/** Paths of PEM files. They are read again for each connection, so certificates are replaced without a restart. */
export interface TlsFiles {
  /** Certificates of the authority that the publishers' certificates are from. */
  readonly ca: string;
  /** This subscriber's certificate, which has its `id` as a DNS name. Not needed with a token. */
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  /** The authority's revocation list. */
  readonly crl?: string | undefined;
}

/** Where a subscriber logs to; `console` is one. */
export type Logger = Record<"debug" | "info" | "warn" | "error", (line: string) => void>;

export interface SubscriberOptions {
  /** The application that this process is a subscriber of. */
  readonly application: string;
  readonly handler: Handler;
  /** Addresses (`host:port`) of all publishers of the application's dataset. */
  readonly dial: readonly string[];
  /** Its name within the application. Name it if updates are parked: only the same id gets them again. */
  readonly id?: string | undefined;
  /** Aborted: the subscriber stops gracefully. */
  readonly signal?: AbortSignal | undefined;
  /** Needed for publishers beyond loopback. */
  readonly tls?: TlsFiles | undefined;
  /** With TLS: names in the publishers' certificates, as `NAME`, or as `DATASET=NAME` for one dataset only. */
  readonly publishers?: readonly string[] | undefined;
  /** The application's token, or a function that returns it before each connection. */
  readonly token?: string | (() => string | Promise<string>) | undefined;
  /** Permits publishers beyond loopback without TLS. */
  readonly insecure?: boolean | undefined;
  /** Share of the shards, relative to the other subscribers. */
  readonly weight?: number | undefined;
  readonly retry?: Partial<RetryPolicy> | undefined;
  /** How long a callback may take before its signal is aborted. */
  readonly handlerTimeoutMs?: number | undefined;
  /** How long a graceful stop may take. */
  readonly stopTimeoutMs?: number | undefined;
  /** Bytes of updates of one shard that may wait in this process. */
  readonly credit?: number | undefined;
  /** Bytes of updates of all shards that may wait in this process. */
  readonly buffer?: number | undefined;
  /** Bytes of the largest gRPC message that is accepted. */
  readonly maxFrame?: number | undefined;
  /** Bytes of the largest update. */
  readonly maxUpdate?: number | undefined;
  /** Bytes of shards, schemas, datamarkers and lists that publishers may make this process keep. */
  readonly maxState?: number | undefined;
  /** Whether the effects of the handler depend on a row's last state alone, so that a replay may leave out the rest. */
  readonly stateOnly?: boolean | undefined;
  readonly logger?: Logger | undefined;
  /** Called when a publisher cannot be reached or refuses this subscriber. It is dialled again. */
  readonly onDisconnected?: ((address: string, error: StreamBroken) => void) | undefined;
}

type Optional = "signal" | "tls" | "token" | "onDisconnected";
type Defaulted = Omit<SubscriberOptions, "retry" | Optional>;

/** The options with their defaults. */
export type Settings = { readonly [Name in keyof Defaulted]-?: Exclude<Defaulted[Name], undefined> } & {
  readonly [Name in Optional]: SubscriberOptions[Name];
} & { readonly retry: RetryPolicy; readonly instance: string };

const MIB = 1 << 20;
const LEAST_FRAME = 4096;
const LONGEST_NAME = 255;
const LARGEST = 1 << 30;
const LONGEST_MS = 0x7fff_ffff; // of a timer of Node
const WEIGHTS = [1e-9, 1e9] as const;

/** Checks the options. Throws a `ConfigError` that names everything that is wrong. */
export function settingsOf(given: SubscriberOptions): Settings {
  const settings: Settings = {
    ...given,
    signal: given.signal,
    tls: given.tls,
    token: given.token,
    onDisconnected: given.onDisconnected,
    id: given.id ?? `${hostname()}-${process.pid}`,
    publishers: given.publishers ?? [],
    insecure: given.insecure ?? false,
    weight: given.weight ?? 1,
    retry: { attempts: 8, firstWaitMs: 100, longestWaitMs: 60_000, ...given.retry },
    handlerTimeoutMs: given.handlerTimeoutMs ?? 30_000,
    stopTimeoutMs: given.stopTimeoutMs ?? 25_000,
    credit: given.credit ?? 4 * MIB,
    buffer: given.buffer ?? 64 * MIB,
    maxFrame: given.maxFrame ?? 4 * MIB,
    maxUpdate: given.maxUpdate ?? 64 * MIB,
    maxState: given.maxState ?? 64 * MIB,
    stateOnly: given.stateOnly ?? false,
    logger: given.logger ?? console,
    instance: randomBytes(16).toString("hex"),
  };
  const problems = [...wrongNumbers(settings), ...wrongNames(settings), ...wrongTrust(settings)];
  const { onUpdate, onUpdates } = settings.handler;
  if (!onUpdate === !onUpdates) problems.push("handler: exactly one of onUpdate and onUpdates is needed");
  if (problems.length) throw new ConfigError(`subscriber options: ${problems.join("; ")}`);
  return settings;
}

function wrongNumbers(settings: Settings): string[] {
  const { retry, weight } = settings;
  const whole = { ...pick(settings, "credit", "buffer", "maxUpdate", "maxState"), attempts: retry.attempts };
  const problems = Object.entries(whole)
    .filter(([, value]) => !Number.isInteger(value) || value < 1 || value > LARGEST)
    .map(([name, value]) => `${name} = ${value}: a whole number from 1 to ${LARGEST} is needed`);
  if (!Number.isInteger(settings.maxFrame) || settings.maxFrame < LEAST_FRAME || settings.maxFrame > LARGEST) {
    problems.push(`maxFrame = ${settings.maxFrame}: a whole number from ${LEAST_FRAME} to ${LARGEST} is needed`);
  }
  const limits = pick(settings, "handlerTimeoutMs", "stopTimeoutMs");
  for (const [name, value] of Object.entries({ ...limits, ...pick(retry, "firstWaitMs", "longestWaitMs") })) {
    if (!(value >= 0 && value <= LONGEST_MS)) problems.push(`${name} = ${value}: 0 to ${LONGEST_MS} is needed`);
  }
  const [least, most] = WEIGHTS;
  if (!(weight >= least && weight <= most)) problems.push(`weight = ${weight}: ${least} to ${most} is needed`);
  return problems;
}

function wrongNames({ application, id, dial }: Settings): string[] {
  const problems = Object.entries({ application, id })
    .filter(([, name]) => !name || [...name].length > LONGEST_NAME)
    .map(([option]) => `${option}: 1 to ${LONGEST_NAME} characters are needed`);
  if (!dial.length) problems.push("dial: the addresses of the publishers are needed");
  return [
    ...problems,
    ...dial.filter((address) => !/^.+:[1-9]\d{0,4}$/.test(address)).map((a) => `dial: "${a}" is no host:port`),
  ];
}

function wrongTrust({ tls, publishers, token, insecure, dial }: Settings): string[] {
  const far = dial.find((address) => !isLoopback(address));
  if (tls === undefined) {
    if (publishers.length) return ["publishers is set without tls: without certificates no name is known"];
    if (far !== undefined && token !== undefined) return [`dial: without TLS a token is not sent to ${far}`];
    if (far === undefined || insecure) return [];
    return [`dial: without TLS every update from ${far} could be read and forged: set tls and publishers`];
  }
  const problems = [];
  if (!publishers.length) problems.push("publishers: with tls the names in the publishers' certificates are needed");
  if ((tls.cert === undefined) !== (tls.key === undefined)) problems.push("tls: cert and key belong together");
  if (tls.cert === undefined && token === undefined) problems.push("tls: cert and key, or a token, are needed");
  return problems;
}

/** Whether nobody but processes of this machine can listen at the address. */
function isLoopback(address: string): boolean {
  const host = address.slice(0, address.lastIndexOf(":"));
  return host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

function pick<T, K extends keyof T>(from: T, ...names: K[]): Pick<T, K> {
  return Object.fromEntries(names.map((name) => [name, from[name]])) as Pick<T, K>;
}
