"""The list of all metrics. Exporters take their metrics from it. A test compares docs/metrics.md, the alerts and the
dashboard with it.

A publisher's metric begins with the labels of its log (dataset, copy, log), so that a monitor can join the metrics of
its publishers line by line. An unknown value is left out. It is not exported as 0.
"""

from __future__ import annotations

from typing import Final

from wormhole.metrics.model import Exporter, Kind, Metric

__all__ = ["METRICS"]

_C, _G, _H, _I = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, Kind.INFO
_LOG: Final = ("dataset", "copy", "log")
_AGES: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)
_WRITES: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

_CERTIFICATE_ENDS: Final = (
    "When a file of `[tls]` has to be replaced, in seconds since 1970: "
    "the first of its certificates expires (`cert`, `ca`), or its list is out of date (`crl`)."
)
_CERTIFICATE_RELOADS: Final = (
    "How often changed files of `[tls]` were loaded (`loaded`), or not used because they are wrong (`refused`)."
)


def _publisher(name: str, kind: Kind, meaning: str, *labels: str, buckets: tuple[float, ...] = ()) -> Metric:
    return Metric(f"wormhole_{name}", kind, Exporter.PUBLISHER, (*_LOG, *labels), meaning, buckets)


def _flow(name: str, kind: Kind, meaning: str) -> Metric:
    return _publisher(f"flow_{name}", kind, meaning, "application", "shard")


def _push(name: str, kind: Kind, meaning: str, *labels: str) -> Metric:
    return _publisher(f"push_{name}", kind, meaning, "application", "subscriber", *labels)


def _monitor(name: str, kind: Kind, meaning: str, *labels: str) -> Metric:
    return Metric(f"wormhole_monitor_{name}", kind, Exporter.MONITOR, ("host", *labels), meaning)


def _subscriber(name: str, kind: Kind, meaning: str, *labels: str) -> Metric:
    return Metric(
        f"wormhole_subscriber_{name}", kind, Exporter.SUBSCRIBER, ("application", "subscriber", *labels), meaning
    )


def _archive(name: str, kind: Kind, meaning: str) -> Metric:
    return Metric(f"wormhole_archive_{name}", kind, Exporter.ARCHIVER, ("dataset", "shard"), meaning)


def _sink(name: str, kind: Kind, meaning: str, *labels: str) -> Metric:
    return Metric(f"wormhole_sink_{name}", kind, Exporter.SINK, ("sink", "subscriber", *labels), meaning)


# -- the publisher's process

PUBLISHER_BUILD = _publisher(
    "publisher_build_info",
    _I,
    "Version, and whether the hot modules run compiled: `yes`, `partly` or `no`.",
    "version",
    "compiled",
)
PUBLISHER_START = _publisher("publisher_start_time_seconds", _G, "When the process started, in seconds since 1970.")
PUBLISHER_READY = _publisher(
    "publisher_ready",
    _G,
    "1 while `/readyz` returns ready: the log is read, coordination holds and datamarkers are stored; or another "
    "publisher owns the log.",
)
PUBLISHER_MEMORY = _publisher("publisher_resident_memory_bytes", _G, "Memory that the process holds.")
PUBLISHER_CPU = _publisher(
    "publisher_cpu_seconds_total", _C, "Processor time that the process used, of all its threads."
)
PUBLISHER_FILES = _publisher("publisher_open_files", _G, "File descriptors that are open.")
PUBLISHER_LOOP_DELAY = _publisher(
    "publisher_loop_delay_seconds",
    _G,
    "How late the event loop is; near the gather interval (hundredths of a second) one core is not enough.",
)
PUBLISHER_COORDINATION = _publisher("publisher_coordination_connected", _G, "1 while the coordination service answers.")
PUBLISHER_COORDINATION_SILENCE = _publisher(
    "publisher_coordination_silence_seconds",
    _G,
    "Seconds since the last answer of the coordination service; left out where nothing expires (static form).",
)
PUBLISHER_SENDS = _publisher(
    "publisher_may_send",
    _G,
    "0 while the publisher must not act as owner of its flows: its lease is over, or another one serves the log; left "
    "out while it stands by.",
)
PUBLISHER_OWNS = _publisher(
    "publisher_owns",
    _G,
    "1 while the publisher owns its log, 0 while it stands by. `group`: the copy, or `@failover` for the copies of a "
    "failover. Left out where datamarkers are not in ZooKeeper.",
    "group",
)
PUBLISHER_TERM = _publisher(
    "publisher_term",
    _G,
    "Term in which the publisher owns its log. It rises by one whenever the log gets an owner. Left out while it "
    "stands by.",
)
PUBLISHER_STANDBY_READY = _publisher(
    "publisher_standby_ready",
    _G,
    "1 while the publisher stands by and could take over, if need be once its server is promoted; 0: its datastore is "
    "not ready, or lacks what was delivered. Left out while it owns its log.",
)
PUBLISHER_CERTIFICATE_ENDS = _publisher("publisher_certificate_end_time_seconds", _G, _CERTIFICATE_ENDS, "file")
PUBLISHER_CERTIFICATE_RELOADS = _publisher("publisher_certificate_reloads_total", _C, _CERTIFICATE_RELOADS, "outcome")
PUBLISHER_UNSERVED = _publisher(
    "publisher_unserved_applications", _G, "Configured applications that cannot be served as configured."
)

# -- the reader: the log as a whole

READER_BYTES = _publisher(
    "reader_read_bytes_total", _C, "Log read by all caravans together; each caravan reads for itself."
)
READER_TRANSACTIONS = _publisher(
    "reader_transactions_total",
    _C,
    "Transactions that ended in log read for the first time, counted once for each shard that they touch.",
)
READER_UPDATES = _publisher("reader_updates_total", _C, "Updates in log read for the first time.")
LOG_UNREAD = _publisher("log_unread_bytes", _G, "Log that no caravan has read yet; left out when it is not known.")
LOG_GROWTH = _publisher("log_growth_bytes_per_second", _G, "How fast the log grew over the last minute.")
LOG_FILES = _publisher("log_files", _G, "Files that the log consists of.")
LOG_SIZE = _publisher("log_size_bytes", _G, "Size of these files together.")
LOG_BUDGET = _publisher(
    "log_budget_bytes",
    _G,
    ("How much log is kept before the oldest is deleted; left out when there is no bound in bytes."),
)
LOG_PINNED = _publisher("log_pinned_bytes", _G, "Disk that the publisher itself keeps from deletion.")
LOG_PROBLEMS = _publisher(
    "log_problems", _G, "Problems that the source reports now; `wormholectl explain` explains each code.", "code"
)
LOG_SLOT_KEPT = _publisher(
    "log_slot_kept_bytes", _G, "Log that the datastore keeps because of a slot of the publisher.", "slot"
)
LOG_SLOT_LEFT = _publisher(
    "log_slot_left_bytes",
    _G,
    "How much more may be written to the log until the datastore gives the slot up; left out when there is no limit.",
    "slot",
)
LOG_SLOT_LOST = _publisher(
    "log_slot_lost", _G, "1 when the datastore gave the slot up: the log that it kept is gone.", "slot"
)
LOG_SLOT_UNSYNCED = _publisher(
    "log_slot_unsynced",
    _G,
    "1 while the datastore has standbys that do not have the slot; left out where its version gives them none.",
    "slot",
)
LOG_SLOT_CATALOG_AGE = _publisher(
    "log_slot_catalog_age_transactions",
    _G,
    "Transactions since the oldest row of the system catalogues that the slot keeps from vacuum.",
    "slot",
)
RELAY_RECORDING = _publisher(
    "relay_recording", _G, "1 while the log's relay records what is read; 0: `wormholectl relay show` gives the reason."
)
RELAY_BYTES = _publisher("relay_bytes", _G, "Disk that the relay's records take.")
RELAY_BUDGET = _publisher("relay_budget_bytes", _G, "Disk that they may take (`relay_budget`).")
RELAY_LOG_BYTES = _publisher("relay_log_bytes", _G, "Bytes of log that the records hold.")
RELAY_OLDEST = _publisher(
    "relay_oldest_age_seconds",
    _G,
    "Age of the transaction with which the records begin; left out while there are none or its commit time is unknown.",
)
RELAY_UNSYNCED = _publisher(
    "relay_unsynced_bytes", _G, "Bytes of records that a loss of power would take; left out in `cache`, never synced."
)
RELAY_HOLES = _publisher("relay_holes", _G, "Gaps between records: log that was read and is not recorded.")
RELAY_READERS = _publisher("relay_readers", _G, "Readers that read the relay now, in place of the datastore.")
RELAY_ONLY = _publisher(
    "relay_only", _G, "1 while a flow needs log that the datastore may have deleted and only the relay holds."
)
LOG_STUCK = _publisher(
    "log_stuck_seconds",
    _G,
    "Seconds since which the log is longer than what was read and nothing is read; 0 while reading progresses.",
)

# -- existing rows

ROWS_READ = _publisher("existing_rows_read_total", _C, "Rows that were read from tables for backfills.")
ROWS_CHUNKS = _publisher("existing_rows_chunks_total", _C, "Chunks of rows that entered the log.")
ROWS_DISCARDED = _publisher(
    "existing_rows_discarded_chunks_total", _C, "Chunks of rows that were read again, because too much changed."
)
ROWS_RATE = _publisher("existing_rows_bytes_per_second", _G, "Bytes of rows read, over the last few seconds.")
ROWS_WAIT = _publisher(
    "existing_rows_waiting", _G, "1 while a flow needs rows and none are read: `wormholectl backfill` gives the reason."
)

# -- caravans

CARAVANS = _publisher("caravans", _G, "Caravans: readers of the log and their flows.")
CARAVANS_MOST = _publisher("caravans_limit", _G, "Most caravans that there may be (`caravans.max`).")
CARAVANS_STARTED = _publisher(
    "caravans_started_total", _C, "Caravans started so far; a fast rise means that they split and merge all the time."
)
CARAVAN_FLOWS = _publisher(
    "caravan_flows",
    _G,
    "Flows that travel with the lead caravan (`lead`) or with one that catches up (`other`).",
    "role",
)
CARAVAN_RATE = _publisher(
    "caravan_read_bytes_per_second", _G, "How fast the lead (`lead`) and all others together (`other`) read.", "role"
)
CARAVAN_BEHIND = _publisher(
    "caravan_behind_bytes", _G, "How much log lies between the lead and the caravan that is furthest behind."
)
CARAVAN_BUFFER = _publisher("caravan_buffer_bytes", _G, "Memory of all change buffers together.")
CARAVAN_BUFFER_MOST = _publisher(
    "caravan_buffer_limit_bytes", _G, "What all change buffers together may take (`change_buffer`)."
)

# -- flows

FLOWS = _publisher(
    "flows",
    _G,
    (
        "Flows by application and state (`unassigned`, `paused`, `opening`, `live`, `catching_up`, `held`, "
        "`releasing`, `replaying`, `needs_replay`)."
    ),
    "application",
    "state",
)
FLOW_LAG = _flow(
    "lag_seconds",
    _G,
    "Age of the oldest transaction that is not acknowledged; left out while its commit time is not known.",
)
FLOW_LAG_BYTES = _flow("lag_bytes", _G, "Log after the flow's datamarker, of all shards.")
FLOW_HEADROOM = _flow(
    "headroom_seconds",
    _G,
    "Until the log no longer holds what follows the flow's datamarker, if it keeps growing at this rate.",
)
FLOW_HELD = _flow("held", _G, "1 while the flow is held until an operator or the application decides.")
FLOW_PAUSED = _flow("paused", _G, "1 while an operator paused it.")
FLOW_NEEDS_REPLAY = _flow(
    "needs_replay", _G, "1 while the flow's mass replay has ended early and the log no longer holds its datamarker."
)
FLOW_REPLAYED = _flow(
    "replayed_updates_total", _C, "Updates that a mass replay pushed and the subscriber acknowledged."
)
FLOW_BACKFILL_ROWS = _flow("backfill_rows", _G, "Rows that the flow was sent by its last backfill.")
FLOW_BACKFILL_SHARE = _flow(
    "backfill_share", _G, "How much of its last backfill is sent, 0 to 1, by the datastore's estimate of the rows."
)
FLOW_BACKFILL_REFUSED = _flow("backfill_refused_tables", _G, "Tables whose rows the last backfill could not read.")
FLOW_VERIFY_COMPARED = _flow("verify_compared_rows", _G, "Rows that the flow's last verification compared.")
FLOW_VERIFY_DIFFERENCES = _flow(
    "verify_differences", _G, "Rows that differ, by the flow's last verification, without those that were repaired."
)
FLOW_UPDATES = _flow("updates_total", _C, "Updates sent, repeats included.")
FLOW_BYTES = _flow("sent_bytes_total", _C, "Bytes of batches sent.")
FLOW_BAD_VALUES = _flow(
    "bad_values_total", _C, "Updates sent although their value is not of the format that the filter reads."
)
FLOW_LOSSES = _flow("data_losses_total", _C, "How often the flow stopped because the log lacks a range that it needs.")
AUDIT_MISMATCHES = _publisher(
    "audit_mismatches_total",
    _C,
    "How often a subscriber acknowledged a range of which it had processed fewer updates than were sent.",
    "application",
)
FLOW_CREDIT = _flow("credit_bytes", _G, "How many bytes the subscriber accepts unprocessed.")
FLOW_IN_FLIGHT = _flow("in_flight_bytes", _G, "Bytes that were sent and are not processed.")
FLOW_CREDIT_WAIT = _flow("credit_wait_seconds", _G, "Seconds since the flow's credit was used up; 0: it is not.")
FLOW_STALLED = _flow(
    "stalled_seconds", _G, "Seconds without a processed update while updates are in flight; 0: none are."
)
FLOW_DEAD_LETTERS = _flow(
    "dead_letters", _G, "Updates that are parked because their handler failed, and later updates of the same keys."
)
FLOW_HANDLED = _flow(
    "handled_updates_total",
    _C,
    ("Updates whose callback returned, as the subscriber reports; starts at 0 in each epoch."),
)
FLOW_HANDLER_TIME = _flow(
    "handler_busy_seconds_total", _C, "Time spent in callbacks, as the subscriber reports; starts at 0 in each epoch."
)
FLOW_HANDLER_FAILURES = _flow(
    "handler_failures_total",
    _C,
    "Attempts of callbacks that failed, as the subscriber reports; starts at 0 in each epoch.",
)
FLOW_QUEUED = _flow("queued_bytes", _G, "Bytes that the subscriber received and has not begun, as it reports.")

# -- pushing

PUSH_CONNECTED = _push("connected", _G, "1 while the stream to the subscriber is up.")
PUSH_CONNECTIONS = _push("connections_total", _C, "How often the stream came up; all but the first are reconnects.")
PUSH_MESSAGES = _push("messages_total", _C, "gRPC messages written; each carries several batches under load.")
PUSH_BATCHES = _push("batches_total", _C, "Batches sent.")
PUSH_BYTES = _push("sent_bytes_total", _C, "Bytes of the messages written.")
PUSH_ACKS = _push("acks_total", _C, "Datamarkers that the subscriber acknowledged.")
PUSH_REFUSED = _push(
    "refused_total",
    _C,
    "How often the subscriber lost its stream for a fault of its own: `protocol` (a rule or bound of docs/wire.md), "
    "`memory` (what it parks), "
    "`unread` (answers), `silent` (no welcome).",
    "reason",
)
PUSH_RESTS = _push(
    "rests_total", _C, "How often the subscriber was not read for a moment, because its frames caused much work."
)
PUSH_CHARGED = _push(
    "charged_seconds_total",
    _C,
    "Processor seconds that the subscriber was charged for what it sent. It is not read while it owes some.",
)
ATTACH_LISTENS = _publisher("attach_listens", _G, "1 while subscribers can dial the publisher (`attach_listen`).")
ATTACH_CONNECTED = _publisher("attach_connected", _G, "Subscribers that dialled and are connected.")
ATTACH_REFUSED = _publisher("attach_refused_total", _C, "Attempts to attach that were refused, by code.", "code")
ATTACH_UNFINISHED = _publisher(
    "attach_unfinished_total", _C, "Attempts to attach that were admitted and ended before the welcome."
)
PARKING_BYTES = _publisher("parking_bytes", _G, "Memory for updates that are being parked and are not stored yet.")
PARKING_MOST = _publisher(
    "parking_most_bytes", _G, ("Limit of that memory; the subscriber that holds the most loses its stream.")
)
ACK_AGE = _publisher(
    "ack_age_seconds",
    _H,
    (
        "Age of the newest transaction before a datamarker when it is acknowledged: from the commit through the "
        "callback and back."
    ),
    "application",
    buckets=_AGES,
)

# -- datamarkers

MARKERS_WAITING = _publisher(
    "markers_waiting", _G, "Acknowledged datamarkers that are not stored yet; a second's worth is usual."
)
MARKERS_FAILING = _publisher(
    "markers_failing", _G, "1 while the last attempt to store datamarkers failed: a restart would repeat more."
)
MARKER_WRITE = _publisher(
    "marker_write_seconds", _H, "How long it took to store a group of datamarkers.", buckets=_WRITES
)

# -- the monitor

MONITOR_BUILD = _monitor("build_info", _I, "Version of the monitor.", "version")
MONITOR_START = _monitor("start_time_seconds", _G, "When the monitor started, in seconds since 1970.")
MONITOR_MEMORY = _monitor("resident_memory_bytes", _G, "Memory that the monitor holds.")
MONITOR_CPU = _monitor("cpu_seconds_total", _C, "Processor time that the monitor used.")
MONITOR_FILES = _monitor("open_files", _G, "File descriptors that are open.")
MONITOR_READY = _monitor("ready", _G, "1 while `/readyz` returns ready.")
MONITOR_COORDINATION = _monitor(
    "coordination_connected",
    _G,
    "1 while the coordination service answers; left out where there is none (static form).",
)
MONITOR_DRAINED = _monitor("drained", _G, "1 while the host is drained: nothing should run on it.")
MONITOR_CERTIFICATE_ENDS = _monitor("certificate_end_time_seconds", _G, _CERTIFICATE_ENDS, "file")
MONITOR_CERTIFICATE_RELOADS = _monitor("certificate_reloads_total", _C, _CERTIFICATE_RELOADS, "outcome")
MONITOR_PUBLISHERS = _monitor(
    "publishers",
    _G,
    "Publishers of this host by phase (`starting`, `running`, `stopping`, `backing_off`, `given_up`, `drained`).",
    "phase",
)
MONITOR_UP = _monitor(
    "publisher_up", _G, "1 when the publisher's own metrics are in this answer; 0: it did not answer in time.", *_LOG
)
MONITOR_GAVE_UP = _monitor(
    "publisher_given_up", _G, "1 while the monitor no longer starts the publisher, because it ended too often.", *_LOG
)
MONITOR_SINK_UP = _monitor(
    "sink_up", _G, "1 when a sink that the monitor runs answered: its metrics are in the same answer.", "sink"
)
MONITOR_RESTARTS = _monitor("publisher_restarts_total", _C, "How often the monitor started the publisher again.", *_LOG)
MONITOR_SILENCE = _monitor(
    "publisher_silence_seconds",
    _G,
    "Seconds since the publisher last answered the monitor, which asks every one to three seconds.",
    *_LOG,
)

# -- a subscriber

SUBSCRIBER_BUILD = _subscriber("build_info", _I, "Version of the SDK.", "version")
SUBSCRIBER_CERTIFICATE_ENDS = _subscriber("certificate_end_time_seconds", _G, _CERTIFICATE_ENDS, "file")
SUBSCRIBER_CERTIFICATE_RELOADS = _subscriber("certificate_reloads_total", _C, _CERTIFICATE_RELOADS, "outcome")
SUBSCRIBER_STREAMS = _subscriber("streams", _G, "Publishers that are connected.")
SUBSCRIBER_FLOWS = _subscriber(
    "flows", _G, "Flows by state (`working`, `resting`, `stopped`, `halted`, `ending`).", "state"
)
SUBSCRIBER_UPDATES = _subscriber("updates_total", _C, "Updates whose callback returned, repeats included.", "shard")
SUBSCRIBER_HANDLER_TIME = _subscriber("handler_busy_seconds_total", _C, "Time spent in callbacks.", "shard")
SUBSCRIBER_FAILURES = _subscriber("handler_failures_total", _C, "Attempts of callbacks that failed.", "shard")
SUBSCRIBER_QUEUED = _subscriber("queued_bytes", _G, "Bytes received and not begun.", "shard")
SUBSCRIBER_HELD = _subscriber(
    "rollback_bytes", _G, "Bytes processed and kept for a rollback until they are acknowledged.", "shard"
)
SUBSCRIBER_TARGET = _subscriber(
    "target_failures",
    _G,
    "Attempts since the last acknowledged datamarker that failed because the application's own store cannot be used.",
    "shard",
)
SUBSCRIBER_LATE = _subscriber(
    "late_frames_total", _C, "Frames dropped because their epoch was over; a few are usual when shards move."
)

# -- an archiver, which is a subscriber too

ARCHIVE_FILES = _archive("files_total", _C, "Files committed since the shard was assigned to this process.")
ARCHIVE_UPDATES = _archive("updates_total", _C, "Updates in these files.")
ARCHIVE_BYTES = _archive("file_bytes_total", _C, "Size of these files.")
ARCHIVE_PENDING = _archive(
    "pending_bytes", _G, ("Uncompressed size of updates that were received and are not committed.")
)
ARCHIVE_PENDING_AGE = _archive(
    "pending_seconds", _G, "How long the oldest of them waits; the log is kept for them. 0 when nothing waits."
)
ARCHIVE_COMMITTED = _archive(
    "last_commit_time_seconds", _G, "When the shard's manifest was committed last, in seconds since 1970."
)

# -- a sink, which is a subscriber too

SINK_INFO = _sink("info", _I, "The kind of its store, and what that store holds after crashes.", "kind", "guarantee")
SINK_PROBLEM = _sink(
    "store_problem", _G, "1 while the examination of its store at the start finds a problem with this code.", "code"
)
SINK_WRITTEN = _sink("written_total", _C, "Records or rows that the store confirmed, repeats included.")
SINK_BYTES = _sink("written_bytes_total", _C, "Size of these.")
SINK_REFUSED = _sink("refused_total", _C, "Records or rows that the store refused for their content, repeats included.")
SINK_WAIT = _sink("store_wait_seconds_total", _C, "Seconds in which shards waited for the store, all shards together.")
SINK_HELD = _sink(
    "held_bytes", _G, "Size of transactions that are not complete, in `memory` and in a temporary `file`.", "place"
)
SINK_UNVERIFIED = _sink(
    "unverified", _G, "Tables whose rows may lack values until a backfill ends, those of each shard counted."
)

METRICS: Final[tuple[Metric, ...]] = tuple(found for found in tuple(globals().values()) if isinstance(found, Metric))
"""Every metric, in the order of this module."""
