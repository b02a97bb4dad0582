/** What can go wrong, for the log and for handlers. */

/** A problem with its next step. `code` is the stable name under which the runbook lists it. */
export class WormholeError extends Error {
  override readonly name: string = "WormholeError";

  constructor(
    message: string,
    readonly code: string,
    readonly hint = "",
  ) {
    super(message);
  }

  /** The problem on one line, as in a log. */
  get line(): string {
    return `${this.message} [${this.code}]${this.hint ? `. Next: ${this.hint}` : ""}`;
  }
}

/** An option is wrong or missing. */
export class ConfigError extends WormholeError {
  override readonly name = "ConfigError";

  constructor(message: string, hint = "") {
    super(message, "config-invalid", hint);
  }
}

/** A publisher cannot be reached, refuses this subscriber, or hung up. */
export class StreamBroken extends WormholeError {
  override readonly name = "StreamBroken";

  constructor(message: string, code = "stream-broken", hint = "") {
    super(message, code, hint);
  }
}

/** A publisher sent what docs/wire.md does not permit. The message names frame and field. */
export class ProtocolError extends WormholeError {
  override readonly name = "ProtocolError";

  constructor(message: string, hint = "") {
    super(message, "protocol-broken", hint);
  }
}

/**
 * Thrown by a handler: trying again is of no use. The update is parked, or the flow halts, without another attempt.
 */
export class PermanentError extends Error {
  override readonly name: string = "PermanentError";
}

/**
 * Thrown by `onAssigned` of an application that stores epochs with its state, if it holds an epoch that is not below
 * the assigned one. The publisher assigns the shard again in a higher epoch.
 */
export class EpochRefused extends Error {
  override readonly name = "EpochRefused";

  constructor(readonly heldEpoch: bigint) {
    super(`the application holds epoch ${heldEpoch}`);
  }
}

/** A callback ran longer than the option `handlerTimeoutMs`: the reason with which its signal is aborted. */
export class HandlerTimeout extends Error {
  override readonly name = "HandlerTimeout";
}

/** The cause that `onRollback` gets if the database rolled back a transaction of which a part was delivered. */
export class TransactionRolledBack extends Error {
  override readonly name = "TransactionRolledBack";

  constructor(readonly transaction: string) {
    super(`the database rolled back transaction ${transaction}, of which a part was delivered`);
  }
}

/** The publisher did not park an update: the flow halts. */
export class ParkRefused extends PermanentError {
  override readonly name = "ParkRefused";
}

const LONGEST_TEXT = 1000;

/** A text of a peer or of a handler, shortened: its length has no limit. */
export function shortened(text: string): string {
  return text.length <= LONGEST_TEXT ? text : `${text.slice(0, LONGEST_TEXT - 3)}...`;
}

/** What a handler threw, which may be anything, as an error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

/** One line for operators. */
export function headline(error: Error): string {
  return shortened(`${error.name}: ${error.message}`.replace(/\s+/g, " "));
}
