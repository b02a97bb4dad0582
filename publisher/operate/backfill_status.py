"""Reports the progress of a flow's backfill as a message. Row counts of tables are the datastore's estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from caravan.backfill.progress import FlowBackfill
from publisher.flows.assigner import Assigner
from publisher.flows.backfills import Backfills
from publisher.flows.row_scans import RowScans
from publisher.flows.verifications import key_text
from publisher.push.flow import PublisherFlow
from wormhole.model.lost_keys import LostKeys
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.verification import TableVerification, VerifyMode
from wormhole.ports.marker_store import BackfillControl
from wormhole.ports.table_source import ScannedTable
from wormhole.wire.bounds import shortened
from wormhole.wire.problems import problem_to_message
from wormhole.wire.v1 import admin_pb2
from wormhole.wire.verification import mode_to_message

__all__ = ["BackfillReports"]

_MOST_TABLES = 200  # the most tables of one flow, to bound a report on all flows
_MOST_DIFFERENCES = 10_000  # the most differences of all flows together
_LEAST_DIFFERENCES = 20
_MOST_COLUMNS = 10
_LONGEST_COLUMN = 64
_MOST_SHARE = 0.99  # the largest reported share while rows are left


class BackfillReports:
    """``shards``: the number of hash shards among which the rows of a table are divided; 1: they are not divided."""

    def __init__(self, backfills: Backfills, scans: RowScans, assigner: Assigner, shards: int) -> None:
        self._backfills = backfills
        self._scans = scans
        self._assigner = assigner
        self._shards = shards

    def status(self, flow: PublisherFlow) -> admin_pb2.BackfillStatus | None:
        """The flow's last backfill; ``None`` if no backfill was ever requested."""
        control = flow.control.backfill
        if control is None:
            return None
        progress = self._backfills.last_progress_of(flow)
        waits = NO_PROBLEM if control.ended or control.paused else self._waits(flow)
        message = self._asked(control)
        scan = self._scans.status
        reads = bool(scan.table) and not waits and progress is not None and scan.table in progress.tables
        sent = progress is not None and progress.finished and control.verify is VerifyMode.NONE
        message.state = _state(flow, control, reads=reads or sent)
        message.MergeFrom(admin_pb2.BackfillStatus(waits=problem_to_message(waits)))
        if reads:
            message.table = scan.table
        self._add_verified(message, self._backfills.verifications(flow))
        keys = self._backfills.keys_of(flow)
        message.lost = str(keys or "")
        if progress is None:
            message.rows = control.rows
            return message
        message.rows = progress.rows
        if not control.ended:
            message.rows_per_s = self._backfills.rows_per_s(flow)
            message.bytes_per_s = scan.rate if self._scans.running else 0.0
        _add_tables(message, progress, self._of_shard(scan.estimates) | _counts(keys))
        return message

    def problem(self, flow: PublisherFlow) -> Problem:
        """Why the flow gets no existing rows although it should, or the tables whose existing rows it lacks."""
        return self._backfills.problem(flow)

    def planned(
        self, planned: BackfillControl, tables: Sequence[ScannedTable], keys: LostKeys | None
    ) -> admin_pb2.BackfillStatus:
        """The preview of a ``planned`` backfill of these tables. ``keys``: the only rows that it sends."""
        message = self._asked(planned)
        message.state, message.lost = "waiting", str(keys or "")
        estimates = self._of_shard({table.name: table.rows for table in tables if table.rows is not None})
        estimates |= _counts(keys)
        for table in tables[:_MOST_TABLES]:
            state = "refused" if table.refused else "waiting"
            described = message.progress.add(table=table.name, state=state, refused=problem_to_message(table.refused))
            if table.name in estimates and not table.refused:
                described.rows_estimate = estimates[table.name]
        wanted = [table.name for table in tables if not table.refused]
        if wanted and all(name in estimates for name in wanted):
            message.rows_estimate = sum(estimates[name] for name in wanted)
        return message

    def _asked(self, control: BackfillControl) -> admin_pb2.BackfillStatus:
        return admin_pb2.BackfillStatus(
            generation=control.generation,
            who=control.who,
            started_s=control.started_s,
            tables=control.tables,
            where=control.where,
            rate=control.rate or self._scans.rate,
            paused=control.paused,
            verify=mode_to_message(control.verify),
        )

    def _waits(self, flow: PublisherFlow) -> Problem:
        """Why no rows are read for the flow now; empty if rows are read."""
        replay, caravan_flow = flow.control.replay, flow.delivery.caravan_flow
        if replay is not None:
            return Problem(
                f"replay {replay.id} has the flow", "it begins anew when the replay is through", code="flow-replaying"
            )
        if own := self._backfills.problem(flow):
            return own
        if caravan_flow is None:
            return flow.problem if flow.cause else Problem("no subscriber has the flow", code="flow-replaying")
        if caravan_flow.backfill is not None and caravan_flow.backfill.renewal is not None:
            return Problem(f"it begins anew: {caravan_flow.backfill.renewal.cause}", code="backfill-waiting")
        stream = self._assigner.stream_of(flow)
        if not self._scans.reach(caravan_flow):
            return Problem(
                "the flow is behind the lead caravan, where rows enter the log",
                f"they follow when it has caught up; `wormholectl why-lag {flow.name}`",
                code="backfill-waiting",
            )
        if stream is not None and not stream.takes_rows(flow):
            return Problem(
                f"no credit: {flow.holding.subscriber} has not processed what it received",
                f"`wormholectl why-lag {flow.name}` shows how its handler does",
                code="backfill-waiting",
            )
        progress = caravan_flow.backfill
        if progress is not None and progress.request.verify and progress.finished:
            return Problem(
                f"{flow.holding.subscriber} lists the keys that its application holds",
                f"`wormholectl why-lag {flow.name}` shows how its callbacks do",
                code="backfill-waiting",
            )
        return self._scans.problem or self._scans.status.waits

    def _add_verified(self, message: admin_pb2.BackfillStatus, found: Sequence[TableVerification]) -> None:
        left = max(_LEAST_DIFFERENCES, _MOST_DIFFERENCES // max(1, len(self._assigner.flows)))
        for table in found[:_MOST_TABLES]:
            described = message.verified.add(
                table=table.table,
                compared=table.compared,
                not_compared=table.not_compared,
                differs=table.differs,
                missing=table.missing,
                extra=table.extra,
                repaired=table.repaired,
                removed=table.removed,
                ended=table.ended,
                trouble=problem_to_message(Problem(table.trouble, code="callback-wrong")),
            )
            for one in table.differences[:left]:
                columns = [shortened(name, _LONGEST_COLUMN) for name in one.columns[:_MOST_COLUMNS]]
                described.differences.add(kind=one.kind.value, key=key_text(table.table, one.key), columns=columns)
            left -= len(described.differences)

    def _of_shard(self, estimates: Mapping[str, int]) -> dict[str, int]:
        """The estimated rows of one shard. With hash shards, each shard has an equal share of a table."""
        return {name: -(-rows // self._shards) for name, rows in estimates.items()}


def _state(flow: PublisherFlow, control: BackfillControl, *, reads: bool) -> str:
    if control.ended:
        return control.ended
    if flow.control.replay is not None:
        return "suspended"
    if control.paused:
        return "paused"
    return "running" if reads else "waiting"


def _counts(keys: LostKeys | None) -> dict[str, int]:
    """The estimated rows of tables of which only some keys are read: the numbers of these keys."""
    tables = {} if keys is None else keys.tables
    return {name: len(table.keys) for name, table in tables.items() if not table.whole}


def _add_tables(message: admin_pb2.BackfillStatus, progress: FlowBackfill, estimates: Mapping[str, int]) -> None:
    done = {table.table: table.rows for table in progress.finished_tables() if table.table}
    left = {table: progress.rows_of(table) for table in progress.tables}
    names = sorted({*done, *left, *progress.refused})
    for name in names[:_MOST_TABLES]:
        refused = problem_to_message(progress.refused.get(name, NO_PROBLEM))
        described = message.progress.add(table=name, rows=done.get(name, progress.rows_of(name)), refused=refused)
        if name in progress.refused:
            described.state = "refused"
        elif name in done:
            described.state = "done"
        else:
            described.state = "running" if name == message.table else "waiting"
        if name in estimates and name not in progress.refused:  # no rows of a refused table are sent
            described.rows_estimate = estimates[name]
    if not progress.offered or any(name not in estimates for name in left):
        return
    # The sent rows are known. The remaining rows of a table are estimated, and are at least 0.
    rest = sum(max(0, estimates[name] - sent) for name, sent in left.items())
    message.rows_estimate = progress.rows + rest
    # The estimate may be too low, so the share is 1 only when no rows are left.
    message.share = 1.0 if not left else min(_MOST_SHARE, progress.rows / max(1, message.rows_estimate))
    if left and message.rows_per_s:
        message.left_s = rest / message.rows_per_s
