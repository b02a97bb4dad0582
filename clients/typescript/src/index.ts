export { Datamarker, type Position } from "./datamarker.js";
export {
  ConfigError,
  EpochRefused,
  HandlerTimeout,
  ParkRefused,
  PermanentError,
  ProtocolError,
  StreamBroken,
  TransactionRolledBack,
  WormholeError,
} from "./errors.js";
export type {
  Assignment,
  Awaitable,
  ChunkEnd,
  DataLoss,
  Flow,
  Halt,
  Handler,
  Key,
  KeptMarker,
  Replay,
  Revocation,
  ScanEnd,
} from "./handler.js";
export { batches, type IterationOptions, updates } from "./iteration.js";
export type { Logger, RetryPolicy, SubscriberOptions, TlsFiles } from "./options.js";
export type { Column, Schema } from "./schema.js";
export { Subscriber } from "./subscriber.js";
export type { Op, Row, Transaction, Update } from "./update.js";
export { Decimal, type Entries, UNAVAILABLE, type Value } from "./values.js";
