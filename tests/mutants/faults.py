"""The faults, in the order of the promises they break (docs/architecture.md lists the promises)."""

from __future__ import annotations

from tests.mutants.access_faults import ACCESS_FAULTS
from tests.mutants.archive_faults import ARCHIVE_FAULTS
from tests.mutants.audit_faults import AUDIT_FAULTS
from tests.mutants.backfill_faults import BACKFILL_FAULTS
from tests.mutants.begin_faults import BEGIN_FAULTS
from tests.mutants.bounds_faults import BOUNDS_FAULTS
from tests.mutants.certificate_faults import CERTIFICATE_FAULTS
from tests.mutants.configuration_faults import CONFIGURATION_FAULTS
from tests.mutants.existing_rows_faults import EXISTING_ROWS_FAULTS
from tests.mutants.export_faults import EXPORT_FAULTS
from tests.mutants.fold_faults import FOLD_FAULTS
from tests.mutants.host_faults import HOST_FAULTS
from tests.mutants.mask_faults import MASK_FAULTS
from tests.mutants.metrics_faults import METRICS_FAULTS
from tests.mutants.model_faults import MODEL_FAULTS
from tests.mutants.monitor_faults import MONITOR_FAULTS
from tests.mutants.mysql_faults import MYSQL_FAULTS
from tests.mutants.operate_faults import OPERATE_FAULTS
from tests.mutants.owner_faults import OWNER_FAULTS
from tests.mutants.page_faults import PAGE_FAULTS
from tests.mutants.parking_faults import PARKING_FAULTS
from tests.mutants.push_faults import PUSH_FAULTS
from tests.mutants.relay_files_faults import RELAY_FILES_FAULTS
from tests.mutants.replay_faults import REPLAY_FAULTS
from tests.mutants.robust_faults import ROBUST_FAULTS
from tests.mutants.runner import Fault
from tests.mutants.sink_faults import SINK_FAULTS
from tests.mutants.snapshot_faults import SNAPSHOT_FAULTS
from tests.mutants.statement_faults import STATEMENT_FAULTS
from tests.mutants.transactional_faults import TRANSACTIONAL_FAULTS
from tests.mutants.trust_faults import TRUST_FAULTS
from tests.mutants.verify_faults import VERIFY_FAULTS

FAULTS: list[Fault] = [
    # --- at least once ---------------------------------------------------------------------------------------------
    Fault(
        name="acknowledged-before-the-callback",
        file="subscriber_sdk/work/flow_worker.py",
        old="            self._keep(item)\n            self._stir()\n",
        new="            self._keep(item)\n            if isinstance(item, MarkerItem):\n                "
        "self._port.ack(item.marker)\n            self._stir()\n",
        tests=("tests/unit/subscriber_sdk/work/test_flow_worker.py",),
        promise="a datamarker is stored only when every callback before it has returned",
    ),
    Fault(
        name="progress-stored-as-marker",
        file="wormhole/push/session.py",
        old="                    return Progressed(flow, self._processed(frame.progress))\n",
        new="                    return Acked(flow, flow.offered[-1][1]) if flow.offered else Progressed(flow)\n",
        tests=("tests/unit/wormhole/push/test_session.py",),
        promise="progress gives credit back and stores nothing",
    ),
    Fault(
        name="ack-of-what-was-never-offered",
        file="wormhole/push/session.py",
        old='        raise ProtocolError(f"ack: {flow.name} was never offered the marker {given}")',
        new="        return Acked(flow, marker_from_message(frame.marker))",
        tests=("tests/unit/wormhole/push/test_session.py",),
        promise="only a marker that was offered in this epoch is stored",
    ),
    Fault(
        name="rocksdb-history-by-numbers-of-files-only",
        file="datastores/rocksdb/history/continuity.py",
        old="            if first is not None and first <= reached[1]:\n",
        new="            if False and first is not None:\n",
        tests=("tests/unit/datastores/rocksdb/history/test_catalogue.py",),
        promise="a RocksDB that was restored and opened several times is another history",
    ),
    Fault(
        name="publisher-ends-when-the-log-has-no-end",
        file="publisher/flows/tailed_log.py",
        old="            except WormholeError as error:\n                # Permanent errors are",
        new="            except CoordinationLost as error:\n                # Permanent errors are",
        tests=("tests/integration/publisher/operate/test_readiness.py",),
        promise="a publisher runs and answers whatever is wrong with its log",
    ),
    Fault(
        name="rocksdb-end-in-an-empty-file-not-reached",
        file="datastores/rocksdb/log/cursor.py",
        old="                self._move(newer)\n",
        new="",
        tests=("tests/unit/datastores/rocksdb/log/test_cursor.py",),
        promise="a reader reaches the log's end also when the last files hold no records",
    ),
    Fault(
        name="decoder-drops-an-update",
        file="datastores/rocksdb/decode/write_batch.py",
        old="            self.updates = n + 1\n            self.counted += 1\n        if at > end:",
        new="            self.updates = n + (0 if kind == 0x07 else 1)\n            self.counted += 1\n        if "
        "at > end:",
        tests=(
            "tests/unit/datastores/rocksdb/decode/test_write_batch.py",
            "tests/property/test_rocksdb_decoders.py",
        ),
        promise="every change in the log is delivered (here: a single deletion is not)",
    ),
    Fault(
        name="flow-drops-an-update",
        file="caravan/buffer.py",
        old="        rest = kept[bisect_left(kept, ordinal) :]",
        new="        rest = kept[bisect_left(kept, ordinal + (1 if resume_index else 0)) :]",
        tests=("tests/unit/caravan/test_buffer.py", "tests/property/test_flow.py"),
        promise="a flow that changes caravans inside a transaction misses nothing",
    ),
    Fault(
        name="first-piece-lost-when-changing-caravans",
        file="caravan/buffer.py",
        old="        self._inside = entry.segment.marker is None",
        new="        self._inside = False",
        tests=("tests/unit/caravan/test_buffer.py",),
        promise="a large transaction is never joined behind its first piece",
    ),
    Fault(
        name="retry-skips-the-failed-update",
        file="subscriber_sdk/work/acks.py",
        old="        self._waiting.extendleft(reversed(self._held))",
        new="        self._waiting.extendleft(list(reversed(self._held))[:-1])",
        tests=("tests/unit/subscriber_sdk/work/test_acks.py", "tests/unit/subscriber_sdk/work/test_flow_worker.py"),
        promise="what failed is tried again",
    ),
    Fault(
        name="failed-write-of-markers-forgotten",
        file="publisher/flows/marker_writer.py",
        old="            refused = frozenset(await loop.run_in_executor(self._pool, self._store.store, writes))",
        new="            self._pending.clear()\n            refused = frozenset(await "
        "loop.run_in_executor(self._pool, self._store.store, writes))",
        tests=("tests/unit/publisher/flows/test_marker_writer.py",),
        promise="while the store fails, acknowledged markers wait for it",
    ),
    Fault(
        name="log-given-up-before-the-marker-is-durable",
        file="publisher/flows/housekeeping.py",
        old="(flow.delivery.needed for flow in",
        new="(flow.delivery.marker.read_from for flow in",
        tests=("tests/integration/publisher/flows/test_housekeeping.py",),
        promise="log is kept until a stored marker has passed it",
    ),
    Fault(
        name="torn-tail-delivered",
        file="datastores/rocksdb/decode/log_format.py",
        old="        if _checksum(data, at + 6, end) != stored & 0xFFFFFFFF:",
        new="        if _checksum(data, at + 6, end) != stored & 0xFFFFFFFF and end < size:",
        tests=(
            "tests/unit/datastores/rocksdb/decode/test_log_format.py",
            "tests/unit/datastores/rocksdb/log/test_reader.py",
        ),
        promise="what was not committed is not delivered",
    ),
    Fault(
        name="prepared-delivered-before-commit",
        file="datastores/rocksdb/log/transaction.py",
        old="        encoder.skipping = self._skipping or self._prepare is not None\n",
        new="        encoder.skipping = self._skipping\n",
        tests=(
            "tests/unit/datastores/rocksdb/log/test_cursor.py",
            "tests/integration/test_rocksdb_wal_transactions.py",
        ),
        promise="prepared data is released at its commit only",
    ),
    # --- order and ownership ---------------------------------------------------------------------------------------
    Fault(
        name="two-updates-swapped",
        file="wormhole/wire/body.py",
        old="    pieces = [blob[ends[i - 1] if i else 0 : ends[i]] for i in keep]",
        new="    pieces = [blob[ends[i - 1] if i else 0 : ends[i]] for i in keep]\n    pieces[-2:] = pieces[:-3:-1]",
        tests=("tests/property/test_body.py",),
        promise="updates come in commit order",
    ),
    Fault(
        name="two-batches-swapped",
        file="subscriber_sdk/work/acks.py",
        old="            waiting.append(item)",
        new="            waiting.insert(max(0, len(waiting) - 1), item)",
        tests=("tests/unit/subscriber_sdk/work/test_acks.py",),
        promise="callbacks run in the order of the log",
    ),
    Fault(
        name="older-epoch-accepted-by-the-subscriber",
        file="subscriber_sdk/work/shards.py",
        old="        stale = assigned.epoch < self.epoch or ",
        new="        stale = ",
        tests=("tests/unit/subscriber_sdk/work/test_flow_worker.py",),
        promise="a former owner delivers nothing any more",
    ),
    Fault(
        name="older-epoch-accepted-by-the-store",
        file="publisher/stores/markers/rules.py",
        old="    return write.epoch == stored.epoch and write.marker.order >= stored.marker.order",
        new="    return write.epoch <= stored.epoch and write.marker.order >= stored.marker.order",
        tests=("tests/unit/publisher/stores/markers/test_rules.py", "tests/contract/test_marker_store.py"),
        promise="a former owner stores nothing any more",
    ),
    Fault(
        name="marker-goes-back",
        file="publisher/stores/markers/rules.py",
        old="    return write.epoch == stored.epoch and write.marker.order >= stored.marker.order",
        new="    return write.epoch == stored.epoch",
        tests=("tests/unit/publisher/stores/markers/test_rules.py", "tests/contract/test_marker_store.py"),
        promise="going back is a rewind's, with an epoch of its own",
    ),
    Fault(
        name="released-not-awaited",
        file="publisher/flows/assigner.py",
        old='"no subscriber is there")\n            elif flow.control.replay is None and (stream := self._taker(',
        new='"no subscriber is there")\n            if flow.control.replay is None and (stream := self._taker(',
        tests=(
            "tests/integration/publisher/test_publisher.py",
            "tests/integration/publisher/test_publisher_failures.py",
            "tests/integration/publisher/test_publisher_epochs.py",
        ),
        promise="one shard of one application is at one subscriber at a time",
    ),
    Fault(
        name="newer-epoch-begins-beside-the-older",
        file="subscriber_sdk/work/flow_worker.py",
        old="            if before is not None:\n                await before.ended()\n",
        new="",
        tests=("tests/unit/subscriber_sdk/work/test_flow_worker.py",),
        promise="callbacks of two epochs of a shard never overlap in one process",
    ),
    # --- transactions ----------------------------------------------------------------------------------------------
    Fault(
        name="end-lost-with-a-filtered-update",
        file="wormhole/wire/body.py",
        old="    if continued and len(run.tx_end) > first_tx and (",
        new="    if False and continued and len(run.tx_end) > first_tx and (",
        tests=("tests/property/test_body.py", "tests/unit/caravan/test_buffer.py"),
        promise="the end of a transaction travels though the filter dropped its last update",
    ),
    Fault(
        name="marker-inside-a-transaction",
        file="datastores/rocksdb/log/reader.py",
        old="        marker = None\n        if whole:\n",
        new="        marker = None\n        if True:\n",
        tests=("tests/unit/datastores/rocksdb/log/test_reader.py",),
        promise="a datamarker never lies inside a transaction",
    ),
    # --- nobody holds up anybody -----------------------------------------------------------------------------------
    Fault(
        name="credit-never-enforced",
        file="wormhole/push/window.py",
        old="        return self.in_flight + size <= self.credit or not self.in_flight",
        new="        return True",
        tests=("tests/unit/wormhole/push/test_window.py", "tests/property/test_session.py"),
        promise="a slow subscriber's memory is bounded by the credit that it gave",
    ),
    Fault(
        name="slow-flow-waited-for",
        file="caravan/caravan.py",
        old="            if held_up and self._settings.may_leave(self):",
        new="            if False and held_up and self._settings.may_leave(self):",
        tests=("tests/unit/caravan/test_fleet.py",),
        promise="a slow flow is left behind, not waited for",
    ),
    # --- no silent gap ---------------------------------------------------------------------------------------------
    Fault(
        name="gap-silently-skipped-by-the-reader",
        file="datastores/rocksdb/log/cursor.py",
        old="        return CursorStep.GAP\n",
        new="        self.gap = None\n        return CursorStep.PROGRESS\n",
        tests=("tests/unit/datastores/rocksdb/log/test_reader.py",),
        promise="a gap in the log is told with its range",
    ),
    Fault(
        name="gap-silently-skipped-by-the-flow",
        file="caravan/flow.py",
        old="            if segment.gap is not None and self._misses(segment.gap, segment.begin):",
        new="            if False and segment.gap is not None and self._misses(segment.gap, segment.begin):",
        tests=(
            "tests/unit/caravan/test_flow.py",
            "tests/integration/publisher/test_publisher.py",
            "tests/integration/publisher/test_publisher_failures.py",
        ),
        promise="a flow stands at a gap until its application decides",
    ),
    Fault(
        name="halt-taken-for-continue",
        file="publisher/flows/losses.py",
        old="        if not proceed:\n",
        new="        if False and not proceed:\n",
        tests=("tests/integration/publisher/flows/test_losses.py",),
        promise="only `continue` lets the marker pass a gap",
    ),
    Fault(
        name="anchor-not-compared",
        file="datastores/rocksdb/log/places.py",
        old="    if there != anchor.id or found.checksum != anchor.checksum or moved:",
        new="    if False and (there != anchor.id or found.checksum != anchor.checksum or moved):",
        tests=("tests/contract/test_log_source.py",),
        promise="a log that is not the marker's is noticed, never reused",
    ),
    # --- filters on values -------------------------------------------------------------------------------------------
    Fault(
        name="row-that-left-is-dropped",
        file="wormhole/filters/bound_to_schema.py",
        old="                return LEFT_KEY if head.was.record is None else LEFT\n",
        new="                return DROP\n",
        tests=("tests/unit/wormhole/filters/test_filter.py", "tests/property/test_filters.py"),
        promise="an update whose row passed before and does not now is delivered, marked left",
    ),
    Fault(
        name="key-only-update-with-values",
        file="wormhole/wire/body.py",
        old="        pieces = [instead.get(i) or blob[ends[i - 1] if i else 0 : ends[i]] for i in keep]\n",
        new="        pieces = [blob[ends[i - 1] if i else 0 : ends[i]] for i in keep]\n",
        tests=("tests/property/test_body.py", "tests/integration/publisher/flows/test_applications.py"),
        promise="what does not pass travels without its values",
    ),
    Fault(
        name="marks-lost-when-a-flow-joins-in-the-middle",
        file="caravan/buffer.py",
        old="            inside=resume_index > 0,\n            marks=found.marks,\n",
        new="            inside=resume_index > 0,\n",
        tests=("tests/unit/caravan/test_buffer.py",),
        promise="a flow that changes caravans receives the same marks",
    ),
    Fault(
        name="unknown-field-fails",
        file="wormhole/filters/leaf_tests.py",
        old="                if comparable is None:\n                    return True\n",
        new="                if comparable is None:\n                    return False\n",
        tests=("tests/unit/wormhole/filters/test_expressions.py", "tests/property/test_filters.py"),
        promise="what nobody can tell is delivered",
    ),
    Fault(
        name="bad-value-passes-for-a-document-without-fields",
        file="wormhole/formats/decoders.py",
        old="""            raise BadValue(f"no valid JSON: {str(error)[:120]}") from error
""",
        new="            return [ABSENT] * len(paths)\n",
        tests=(
            "tests/unit/wormhole/formats/test_formats.py",
            "tests/integration/publisher/flows/test_applications.py",
        ),
        promise="a value that is not of its declared format is counted",
    ),
    Fault(
        name="datamarker-amid-a-transaction",
        file="publisher/push/outgoing.py",
        old="        if caravan_flow.inside:\n",
        new="        if False and caravan_flow.inside:\n",
        tests=("tests/unit/publisher/push/test_stream.py",),
        promise="a datamarker stands at a transaction's end",
    ),
    Fault(
        name="halt-at-a-bad-value-ignored",
        file="publisher/push/outgoing.py",
        old="        if body.bad and flow.halts_on_bad_value:\n",
        new="        if False and body.bad and flow.halts_on_bad_value:\n",
        tests=("tests/integration/publisher/flows/test_applications.py",),
        promise="an application that wants no bad value gets none",
    ),
    Fault(
        name="changed-filter-applied-in-the-old-epoch",
        file="publisher/flows/applications.py",
        old="                self._assigner.recall(flow, cause)\n",
        new="                flow.explain(Problem(cause))\n",
        tests=("tests/integration/publisher/flows/test_applications.py",),
        promise="a filter that is changed takes effect in a new epoch, from the datamarker",
    ),
    *MYSQL_FAULTS,
    *MONITOR_FAULTS,
    *MASK_FAULTS,
    *METRICS_FAULTS,
    *OPERATE_FAULTS,
    *OWNER_FAULTS,
    *BACKFILL_FAULTS,
    *PAGE_FAULTS,
    *CONFIGURATION_FAULTS,
    *BEGIN_FAULTS,
    *AUDIT_FAULTS,
    *PARKING_FAULTS,
    *EXISTING_ROWS_FAULTS,
    *MODEL_FAULTS,
    *PUSH_FAULTS,
    *REPLAY_FAULTS,
    *ROBUST_FAULTS,
    *CERTIFICATE_FAULTS,
    *TRANSACTIONAL_FAULTS,
    *SINK_FAULTS,
    *TRUST_FAULTS,
    *BOUNDS_FAULTS,
    *STATEMENT_FAULTS,
    *FOLD_FAULTS,
    *ARCHIVE_FAULTS,
    *SNAPSHOT_FAULTS,
    *EXPORT_FAULTS,
    *HOST_FAULTS,
    *ACCESS_FAULTS,
    *VERIFY_FAULTS,
    *RELAY_FILES_FAULTS,
]
