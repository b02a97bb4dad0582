"""The driver's part for one flow: hold it, have it pushed, and hand it over to the live log or give it back."""

from __future__ import annotations

import logging
import secrets
import shlex
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.ranges import done_rows, files_between, holding
from spark_replay.replay.flow_plans import FlowPlan
from spark_replay.replay.jobs import Jobs
from spark_replay.replay.progress import Counter
from spark_replay.replay.publisher import TIMEOUT_S, Reach, ReplayClient, TicketLostError
from spark_replay.replay.rate import Shares
from spark_replay.replay.request import (
    FindPublishers,
    FlowReport,
    FoundPublisher,
    ReplayObserver,
    ReplayRequest,
    ReplaySettings,
)
from spark_replay.replay.task import Ended, Task, TaskOutcome
from wormhole.model.errors import (
    ArchiveError,
    ArchiveUnavailable,
    EpochRefused,
    ReplayError,
    Retryable,
    StreamBroken,
    UsageError,
    WormholeError,
)
from wormhole.model.position import Datamarker, LogPosition
from wormhole.wire.markers import marker_from_message, marker_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["ReplayFlow"]

_log = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
_TRIES: Final = 3
"""Attempts within a lease. If a publisher hangs or its host is gone, its successor is found before its lease ends."""
_SNAPSHOT: Final = "snapshot"
_MODES: Final = {"log": admin_pb2.LOG, "latest": admin_pb2.LATEST}

R = TypeVar("R")


class ReplayFlow:
    """One flow of a replay. ``shares``: the shares of the replay's rate. ``stopped``: nothing new may begin.

    The flow's own thread and the thread of the leases use this object.
    """

    def __init__(
        self,
        plan: FlowPlan,
        request: ReplayRequest,
        settings: ReplaySettings,
        find_publishers: FindPublishers,
        jobs: Jobs,
        observer: ReplayObserver,
        shares: Shares,
    ) -> None:
        self.plan = plan
        self._request = request
        self._settings = settings
        self._find_publishers = find_publishers
        self._jobs = jobs
        self._observer = observer
        self._shares = shares
        self._client = self._dial()
        self._leases = self._dial(request.lease_s / _TRIES)
        self._unfound: WormholeError | None = None
        """The reason why the last search for the publisher failed."""
        self._away: tuple[float, Retryable] | None = None
        """The time since which the publisher does not answer the driver, and the last error; ``None``: it answers."""
        self.stopped = threading.Event()
        self.finished = False
        self.rows = plan.snapshot_rows + plan.range.rows
        self.updates, self.bytes = Counter(), Counter()
        self._place = plan.range.begin.order
        self._state = ""
        self._given: Task | None = None
        """The task that Spark runs or is about to run; ``None``: none."""
        self._opener = ""
        self._left_out: FlowReport | None = None
        self._marker = plan.first or plan.range.begin
        self._in_snapshot = plan.first is not None
        self._pushed_updates = self._pushed_bytes = 0

    @property
    def log(self) -> tuple[str, str, str]:
        """The flow's log, whichever publisher serves it."""
        return self._settings.log_of(self.plan.publisher.status)

    def _dial(self, timeout_s: float = TIMEOUT_S) -> ReplayClient:
        at = self.plan.publisher
        return ReplayClient(at.reach, self.plan.flow, self._request.id, local=at.local, timeout_s=timeout_s)

    # -- what the driver does

    def begin(self) -> None:
        """Take the flow from the live log, or resume it where it ended.

        A flow that cannot be resumed is left as it is, and reported by :meth:`run`. Raises
        :class:`~wormhole.model.errors.WormholeError`.
        """
        range_ = self.plan.range
        what = admin_pb2.BeginReplay(
            who=self._request.who,
            mode=_MODES[self.plan.mode],
            until=marker_to_message(range_.until),
            where=self._request.where,
            lease_s=self._request.lease_s,
            resumes=self.plan.started_s,
        )
        if range_.rewinds:
            what.begin.CopyFrom(marker_to_message(self.plan.first or range_.begin))
        if self.plan.first is not None:
            what.snapshot.CopyFrom(marker_to_message(range_.begin))
        try:
            reply = self._again(lambda: self._client.begin(what))
            self._seen(reply)
            if what.resumes not in (0.0, reply.replay.started_s):
                # A publisher of an earlier release began another replay at the flow's own datamarker.
                self._seen(self._again(lambda: self._client.cancel(self._request.who)))
                raise ReplayError(f"there is no replay {self._request.id!r} of it any more", flow=self.plan.flow)
        except ReplayError as error:
            if not self.plan.begun:
                raise
            self._leave(error)
            return
        self._leases.ticket = self._client.ticket

    def _leave(self, error: ReplayError) -> None:
        """Leave the flow as it is: it was not resumed."""
        hint = error.hint or "see what `wormholectl flows` shows of it"
        with suppress(WormholeError):
            reply = self._client.begin(admin_pb2.BeginReplay(preview=True))
            self._state = reply.flow.state
            has = reply.replay
            if (has.replay, has.started_s) == (self._request.id, self.plan.started_s):
                hint = f"{hint}; then `{self._request.resume_command}` goes on"
            else:
                hint = f"{hint}; if its updates are still wanted: `{self._anew}`"
        message = f"it was not resumed: {error.message}"
        self._observer.says(f"{self.plan.flow}: {message}")
        self._left_out, self.finished = self._report(self._marker, message, hint, error.code), True

    @property
    def _anew(self) -> str:
        """The command that pushes again what this replay was to push."""
        plan, request = self.plan, self._request
        begin = f"--snapshot {request.snapshot}" if plan.first else f"--from {plan.range.begin.order}"
        where = f" --where {shlex.quote(request.where)}" if request.where else ""
        return f"wormholectl replay --app {request.application} --shards {plan.shard} {begin}{where}"

    def give_back(self) -> None:
        """Undo :meth:`begin`. If the publisher cannot be reached, the replay of the flow ends with the lease."""
        with suppress(WormholeError):
            self._seen(self._client.cancel(self._request.who))
        self.finished = True

    def renew(self) -> FoundPublisher | None:
        """Renew the lease, if the flow has one. Returns the publisher if it was found at another address.

        A publisher that does not answer is called again soon. The leases that it keeps do not run out while it is down.
        """
        if not self._leases.ticket:
            return None
        found = None
        try:
            while self._renewed():
                pass
            self._away = self._unfound = None
        except Retryable as error:
            since = self._settings.clock.monotonic() if self._away is None else self._away[0]
            self._away = since, error
            found = self._find()
        except UsageError:
            found = self._find()  # another publisher may answer at its address
        except WormholeError:
            pass  # the task gets the same error, and reports it
        self._withdraw()
        return found

    def _withdraw(self) -> None:
        """End a task that cannot reach its publisher.

        A task that dials the publisher's former address is ended, because executors cannot find the new address. A task
        that still waits for a slot is ended when the publisher was down for too long, because the task would begin its
        own wait for the publisher only in the slot.
        """
        task = self._given
        if task is not None and (not self._is_at(task.publisher) or (self._lost is not None and not self.pushing)):
            self._jobs.withdraw(task)

    @property
    def _lost(self) -> Retryable | None:
        """The error, if the publisher has not answered the driver for longer than the patience."""
        if self._away is None:
            return None
        since, error = self._away
        return error if self._settings.clock.monotonic() - since > self._request.patience_s else None

    def _renewed(self) -> bool:
        """Renew the lease, with the task's share of the rate. Returns whether another share is due at once."""
        flow, granted = self.plan.flow, self._shares.grant(self.plan.flow)
        reply = self._leases.renew(granted)
        self._seen(reply)
        pushed_at = reply.replay.rate if reply.replay.HasField("rate") else None
        return self._shares.received(flow, granted, pushed_at, pushing=self.pushing)

    @property
    def pushing(self) -> bool:
        """Whether a task has opened the flow."""
        task = self._given
        return task is not None and self._opener.startswith(f"{task.name}.")

    @property
    def pushed(self) -> tuple[int, int]:
        """Acknowledged updates and bytes, from the publisher's last answer or from the tasks that ended."""
        return max(self.updates.value, self._pushed_updates), max(self.bytes.value, self._pushed_bytes)

    def done_rows(self) -> int:
        """About how many rows of its range are pushed and acknowledged."""
        if self.finished:
            return self.rows
        if self._in_snapshot:
            return min(self.pushed[0], self.plan.snapshot_rows)
        return self.plan.snapshot_rows + done_rows(self.plan.files, self._place)

    def run(self) -> FlowReport:
        """Push the range and hand the flow over. Raises nothing, because the report contains any error."""
        try:
            return self._left_out or self._pushed()
        except WormholeError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - reported beside the other flows' results
            _log.exception("%s: internal error", self.plan.flow)
            return self._failed(
                ReplayError(
                    f"internal error: {type(error).__name__}: {error}", hint="report this", code="internal-error"
                )
            )
        finally:
            self.finished = True
            self._shares.done(self.plan.flow)
            self._client.close()
            self._leases.close()

    # -- inside

    def _pushed(self) -> FlowReport:
        outcome, range_ = None, self.plan.range
        if self.plan.first is not None:
            outcome = self._job(_SNAPSHOT, self.plan.first, range_.begin)
            self._in_snapshot = False
        if outcome is None or range_.until.order > range_.begin.order:
            outcome = self._job(self.plan.mode, range_.begin, range_.until)
        lost: admin_pb2.PurgedLog | None = None
        while True:
            marker = outcome.marker or self._marker
            try:
                reply = self._finish(outcome.epoch, marker, accept_gap=lost is not None)
            except EpochRefused as error:
                # The publisher restarted, or the flow was paused, or its filter changed. Another task opens the flow
                # once more, and then it is handed over.
                self._observer.says(f"{self.plan.flow}: {error.message}; it is opened once more to be handed over")
                outcome = self._job("log", marker, marker)
                continue
            if lost is not None:
                return self._behind(marker, reply.purged if reply.HasField("purged") else lost)
            if not reply.HasField("purged"):
                return self._report(marker, "")
            until = self._grown(marker)
            if until is None:
                lost = reply.purged
                continue
            self._observer.says(
                f"{self.plan.flow}: the live log no longer reaches back to {marker.order}, going on to {until.order}"
            )
            outcome = self._job("log", marker, until)

    def _behind(self, marker: Datamarker, gap: admin_pb2.PurgedLog) -> FlowReport:
        missing = f"{gap.first_missing} to {gap.last_missing}" if gap.first_missing else "what lies between"
        return self._report(
            marker,
            (
                f"data loss: the live log begins behind the end of the archive, {missing} exists nowhere any more "
                f"({gap.message})"
            ),
            "the application gets the same range; let the archiver run all the time, and let the log live longer "
            "than the archiver may be down",
        )

    def _finish(self, epoch: int, marker: Datamarker, *, accept_gap: bool) -> admin_pb2.ReplayReply:
        try:
            reply = self._again(lambda: self._client.finish(epoch, marker, accept_gap=accept_gap))
        except ReplayError:
            if not self._is_live(marker):
                raise
            return admin_pb2.ReplayReply()  # it was finished, and the answer was lost when the publisher died
        self._seen(reply)
        return reply

    def _is_live(self, marker: Datamarker) -> bool:
        """Whether no replay has the flow, and everything up to ``marker`` is acknowledged. False if this is not
        known.
        """
        with suppress(WormholeError):
            for one in self._find_publishers(self._has_log):
                for flow in one.status.flows:
                    if flow.flow == self.plan.flow and flow.HasField("marker") and not flow.HasField("replay"):
                        return marker_from_message(flow.marker).order >= marker.order
        return False

    def _grown(self, marker: Datamarker) -> Datamarker | None:
        """Wait until the archive ends after ``marker``. Returns its end; ``None``: the archive no longer grows."""
        ends = self._settings.clock.monotonic() + self._settings.grow_s
        while True:
            manifest = self._again(lambda: self._settings.store.read(self.plan.shard))
            if manifest is not None and manifest.end.order > marker.order:
                self._counts(files_between(manifest, self.plan.range.begin, manifest.end))
                return manifest.end
            if self._settings.clock.monotonic() > ends:
                return None
            if self.stopped.wait(_AGAIN_S):
                raise ReplayError("the driver was stopped", flow=self.plan.flow)

    def _job(self, mode: str, begin: Datamarker, until: Datamarker) -> TaskOutcome:
        """Run a task, and another one if the publisher moved to another address, or after a pause of the flow."""
        while True:
            if self.stopped.is_set():
                raise ReplayError("the driver was stopped", flow=self.plan.flow)
            task = self._task(begin, until)
            try:
                outcome = self._outcome_of(mode, task)
            except ReplayError as error:
                if self._is_at(task.publisher):
                    lost = self._lost
                    raise error if lost is None else self._not_found(lost) from None
                self._pushed_updates, self._pushed_bytes = self.pushed
                continue  # the task was withdrawn
            self._pushed_updates += outcome.updates
            self._pushed_bytes += outcome.bytes
            self._marker = outcome.marker or self._marker
            if outcome.ended is Ended.DONE:
                return outcome
            if outcome.ended is Ended.PAUSED:
                self._until_resumed()
                continue
            self._find()
            if not self._is_at(task.publisher):
                continue  # another publisher may have answered at its address
            failed = ReplayError(outcome.message, flow=self.plan.flow, hint=outcome.hint or None, code=outcome.code)
            raise self._not_found(failed) if outcome.ended is Ended.UNREACHABLE else failed

    def _outcome_of(self, mode: str, task: Task) -> TaskOutcome:
        """Have Spark run the task. Returns its outcome."""
        self._given = task
        try:
            if mode == _SNAPSHOT:
                return self._jobs.snapshot(task)
            if mode == "latest":
                return self._latest(task)
            return self._jobs.log(task)
        finally:
            self._given = None

    def _is_at(self, publisher: Reach) -> bool:
        return self._client.reach == publisher

    def _until_resumed(self) -> None:
        while paused := self._again(self._client.renew).flow.paused:
            if self.stopped.wait(_AGAIN_S):
                raise ReplayError(f"the driver was stopped, the flow is paused by {paused}", flow=self.plan.flow)

    def _latest(self, task: Task) -> TaskOutcome:
        """Push the last changes of the files in the newest manifest.

        The planned files may have been merged into others since the plan, also while a task read them.
        """

        def push() -> TaskOutcome:
            while True:
                files = self._newest(task)
                self._counts(files)
                try:
                    return self._jobs.latest(task, self.plan.chosen, by_values=self.plan.by_values)
                except (ArchiveError, ArchiveUnavailable):
                    if self._newest(task) == files:
                        raise

        return self._again(push)

    def _newest(self, task: Task) -> tuple[FileEntry, ...]:
        manifest = holding(self._settings.store.read(self.plan.shard), self.plan.shard, task.begin, task.until)
        return files_between(manifest, task.begin, task.until)

    def _counts(self, files: tuple[FileEntry, ...]) -> None:
        self.plan.files = files
        self.rows = self.plan.snapshot_rows + sum(entry.rows for entry in files)

    def _task(self, begin: Datamarker, until: Datamarker) -> Task:
        settings = self._settings
        return Task(
            flow=self.plan.flow,
            replay=self._request.id,
            ticket=self._client.ticket,
            name=secrets.token_hex(4),
            publisher=self._client.reach,
            store=settings.store,
            shard=self.plan.shard,
            begin=begin,
            until=until,
            where=self._request.where,
            formats=settings.formats,
            rate=self._shares.least,
            patience_s=self._request.patience_s,
            tls=settings.tls,
            heartbeat_s=settings.heartbeat_s,
            max_frame=settings.max_frame,
            halts_on_bad_value=settings.application.on_bad_value == "halt",
            mask_key_file=settings.mask_key_file,
        )

    def _again(self, ask: Callable[[], R]) -> R:
        """Repeat a call to the publisher or the archive until it answers, or until the patience ends."""
        ends = self._settings.clock.monotonic() + self._request.patience_s
        while True:
            try:
                return ask()
            except Retryable as error:
                if self._settings.clock.monotonic() > ends or self.stopped.wait(_AGAIN_S):
                    raise self._not_found(error) from None
                self._find()

    def _find(self) -> FoundPublisher | None:
        """Find the flow's publisher. Returns it if it has another address than before."""
        self._unfound = None
        try:
            found = next(iter(self._find_publishers(self._has_log)), None)
        except WormholeError as error:
            self._unfound = error
            return None
        return found if found is not None and self.move(found) else None

    def move(self, publisher: FoundPublisher) -> bool:
        """Use ``publisher`` from now on. Returns whether it has another address than before."""
        if self._is_at(publisher.reach):
            return False
        for client in (self._client, self._leases):
            client.move(publisher.reach, publisher.local)
        return True

    def _has_log(self, status: admin_pb2.PublisherStatus) -> bool:
        return self._settings.log_of(status) == self.log

    def _not_found(self, error: WormholeError) -> WormholeError:
        """``error`` with the reason why the publisher was not found, and the next step for it."""
        why = self._unfound
        if why is None:
            return error
        hint = why.hint or error.hint
        return StreamBroken(f"{error.message}; {why.message}", flow=self.plan.flow, hint=hint, code=why.code)

    def _seen(self, reply: admin_pb2.ReplayReply) -> None:
        self._state = reply.flow.state or self._state
        if not reply.HasField("replay"):
            return
        self._opener = reply.replay.opener
        self.updates.seen(reply.replay.updates)
        self.bytes.seen(reply.replay.bytes)
        if reply.flow.HasField("marker") and reply.replay.attempts:  # set back when the first task opens it
            self._place = marker_from_message(reply.flow.marker).order
        if progress := reply.replay.progress:
            self._place = max(self._place, LogPosition.from_bytes(progress[: LogPosition.SIZE]))

    def _failed(self, error: WormholeError) -> FlowReport:
        """Give the flow back, and report its state."""
        hint, goes_on = error.hint or "", True
        if isinstance(error, TicketLostError):
            became, goes_on = "another driver has taken it up", False
        elif self.stopped.is_set():
            became = f"it stays with this replay for the length of its lease, {self._request.lease_s:g} s"
        else:
            try:
                reply = self._client.cancel(self._request.who)
                self._seen(reply)
                goes_on = reply.flow.state == "needs_replay"  # from this reply: the other thread may have set another
                became = (
                    "it needs a replay: the live log does not reach back"
                    if goes_on
                    else "it is live again: the log reaches back"
                )
            except WormholeError as other:
                became = (
                    f"what became of it is not known ({other.message}); "
                    f"its lease ends within {self._request.lease_s:g} s"
                )
        if not goes_on:
            hint = hint or "correct that, then begin another replay"
        elif self._request.resume_command not in hint:
            hint = f"{hint or 'correct that'}; then `{self._request.resume_command}` goes on"
        return replace(self._report(self._marker, f"{error.message}; {became}", hint, error.code), handed_over=False)

    def _report(self, marker: Datamarker, message: str, hint: str = "", code: str = "") -> FlowReport:
        return FlowReport(
            flow=self.plan.flow,
            mode=self.plan.mode,
            handed_over=not message,
            state=self._state if message else "live",
            marker=str(marker.order),
            updates=self._pushed_updates,
            bytes=self._pushed_bytes,
            message=message,
            hint=hint,
            code=code,
        )
