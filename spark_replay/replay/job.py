"""Runs a replay from a program or the command line: finds configuration and publishers, and starts the Spark job.

from spark_replay import Replay, cancel_replay, run_replay

result = run_replay("shop.toml", Replay("cache", since="2h"))
assert result.handed_over
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from spark_replay.archive.choice import check_archive, check_formats
from spark_replay.archive.ranges import asked_from, asked_until
from spark_replay.archive.store import open_store
from spark_replay.replay import flow_plans, mode_selection
from spark_replay.replay.driver import Driver
from spark_replay.replay.estimate import Estimate
from spark_replay.replay.flow_plans import FlowPlan
from spark_replay.replay.jobs import Jobs
from spark_replay.replay.mode import Wanted
from spark_replay.replay.progress import ReplayProgress
from spark_replay.replay.publisher import Reach, ReplayClient
from spark_replay.replay.request import (
    AT_ONCE,
    FindPublishers,
    FlowReport,
    FoundPublisher,
    ReplayObserver,
    ReplayRequest,
    ReplaySettings,
)
from spark_replay.spark import session
from spark_replay.tables.start import start_rows
from wormhole.admin import admin_service
from wormhole.admin.discovery import configured, with_coordinator
from wormhole.config import Config, DatasetConfig, TlsFiles
from wormhole.config.processes import PublisherConfig
from wormhole.coordination.current_user import current_user
from wormhole.coordination.port import Coordinator, StoredConfig
from wormhole.host.clock import SYSTEM_CLOCK
from wormhole.host.where import Where
from wormhole.model.errors import StreamBroken, UnknownApplication, UsageError, WormholeError
from wormhole.wire.v1 import admin_pb2

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PlannedReplay", "Replay", "Replayed", "cancel_replay", "plan_replay", "run_replay", "setting_of"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replay:
    """The options of a replay, the same as those of ``wormholectl replay`` (docs/replay.md).

    ``archives``: archives that may be read although only ZooKeeper names them. ``start`` or ``since``, and ``until``:
    both ends of the range, in the command's syntax; empty: the datamarker, and the end of the archive. ``where``: a
    filter. ``snapshot``: the folder of a snapshot whose rows come first. ``rate``: bytes per second; 0: no limit.
    ``at_once``: the most flows that Spark gets at one time. ``master``: Spark's master; empty: Spark's own choice.
    ``patience_s``: how long to wait for a subscriber. ``lease_s``: how long flows are held after this process died.
    ``resume``: the id of a replay that ended early.
    """

    application: str = ""
    archives: tuple[str, ...] = ()
    shards: tuple[str, ...] = ()
    start: str = ""
    since: str = ""
    until: str = ""
    where: str = ""
    snapshot: str = ""
    mode: Wanted = "auto"
    rate: float = 0.0
    at_once: int = AT_ONCE
    master: str = ""
    patience_s: float = 300.0
    lease_s: float = 30.0
    resume: str = ""


@dataclass(frozen=True, slots=True)
class PlannedReplay:
    """The plan of a replay. ``no_subscriber``: the error if none is connected. ``slots``: tasks that run at a time."""

    plans: Sequence[FlowPlan]
    estimates: Mapping[str, Estimate]
    slots: int
    no_subscriber: WormholeError | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay. ``left_out``: flows of a resumed replay that could not be resumed, with the reason."""

    id: str
    reports: Sequence[FlowReport]
    left_out: Sequence[WormholeError]

    @property
    def handed_over(self) -> bool:
        """Whether every flow continues from the live log after the replayed range."""
        return all(one.handed_over for one in self.reports) and not self.left_out


def run_replay(where: Where | str, replay: Replay, observer: Callable[[str], ReplayObserver] | None = None) -> Replayed:
    """Push the updates again by a Spark job, and hand each flow over to the live log. Blocks until it is done.

    ``where``: the coordinator, or as in :class:`wormhole.admin.Admin`. ``observer``: makes an observer of progress for
    the replay's id; ``None``: progress is logged. Raises :class:`~wormhole.model.errors.WormholeError`. Nothing is
    changed until a flow is held.
    """
    found = _prepared(where, replay)
    if found.no_subscriber is not None:
        raise found.no_subscriber
    watching = (observer or _Logged)(found.request.id)
    for problem in found.left_out:
        watching.says(f"left as it is: {problem}")
    watching.says("starting Spark")
    with _jobs(found, replay.master) as (spark, jobs):
        mode_selection.decide(spark, found.request, found.settings, found.filters, found.plans, counts=False)
        mode_selection.count_snapshot(jobs, found.plans)
        jobs.warm()  # before anything is held
        driver = Driver(found.request, found.settings, found.plans, found.look, jobs, watching)
        resume = found.request.resume_command
        watching.says(f"replay {found.request.id}: {len(found.plans)} flows; if this ends early, `{resume}` goes on")
        return Replayed(found.request.id, driver.run(), found.left_out)


def plan_replay(
    where: Where | str, replay: Replay, observer: Callable[[str], ReplayObserver] | None = None
) -> PlannedReplay:
    """The plan of :func:`run_replay`. Holds and changes nothing. Raises as :func:`run_replay`."""
    found = _prepared(where, replay)
    watching = (observer or _Logged)(found.request.id)
    for problem in found.left_out:
        watching.says(f"left as it is: {problem}")
    decide = partial(mode_selection.decide, counts=True)
    slots = session.local_slots(replay.master)
    if slots and not replay.snapshot and mode_selection.needs_no_spark(found.plans):
        estimates = decide(None, found.request, found.settings, found.filters, found.plans)
        return PlannedReplay(found.plans, estimates, min(slots, replay.at_once), found.no_subscriber)
    watching.says("starting Spark")
    with _jobs(found, replay.master) as (spark, jobs):
        estimates = decide(spark, found.request, found.settings, found.filters, found.plans)
        mode_selection.count_snapshot(jobs, found.plans)
        return PlannedReplay(found.plans, estimates, min(jobs.slots, replay.at_once), found.no_subscriber)


def cancel_replay(where: Where | str, replay_id: str) -> list[tuple[str, str]]:
    """Give back every flow of a replay. Returns each flow with its new state: live, or in need of a replay.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    mine = [
        (one, flow.flow)
        for one in _Look(_where(where)).all()
        for flow in one.status.flows
        if flow.HasField("replay") and flow.replay.replay == replay_id
    ]
    if not mine:
        raise UsageError(
            f"no flow is with a replay {replay_id!r}", hint="`wormholectl flows` shows which are with which"
        )
    cancelled = []
    for one, flow in mine:
        with ReplayClient(one.reach, flow, replay_id, local=one.local) as client:
            cancelled.append((flow, client.cancel(current_user()).flow.state))
    return cancelled


class _Logged:
    """Reports to the log."""

    def __init__(self, replay: str) -> None:
        self._replay = replay

    def says(self, text: str) -> None:
        _log.info("replay %s: %s", self._replay, text)

    def moves(self, progress: ReplayProgress) -> None:
        _log.debug("replay %s: %.0f %%, %d updates", self._replay, 100 * progress.share, progress.updates)


@dataclass(frozen=True, slots=True)
class _Prepared:
    request: ReplayRequest
    settings: ReplaySettings
    filters: flow_plans.Filters
    plans: Sequence[FlowPlan]
    left_out: Sequence[WormholeError]
    no_subscriber: WormholeError | None
    look: FindPublishers


def _prepared(where: Where | str, replay: Replay) -> _Prepared:
    session.check_spark()
    at = _where(where)
    look = _Look(at)
    seen = look.all()
    request = _request(replay, seen)
    settings = setting_of(at, request.application, replay.archives)
    formats = settings.formats.open()
    left_out: Sequence[WormholeError] = []
    if replay.resume:
        plans, left_out = flow_plans.resumed(request, settings, seen)
        request = replace(request, where=flow_plans.where_of(plans))
        filters = flow_plans.filters(request, settings, formats)
    else:
        filters = flow_plans.filters(request, settings, formats)
        plans = flow_plans.plan(request, settings, seen)
        flow_plans.check_free(request, plans)
    no_subscriber = flow_plans.no_subscriber_takes(request.application, plans)
    return _Prepared(request, settings, filters, plans, left_out, no_subscriber, look)


@contextmanager
def _jobs(found: _Prepared, master: str) -> Iterator[tuple[SparkSession, Jobs]]:
    spark = session.spark_session(f"wormhole replay {found.request.id}", master or None, pushing=True)
    try:
        start = None
        if found.request.snapshot:
            store = found.settings.store
            wants = flow_plans.wants_of(found.settings)
            start = start_rows(spark, found.request.snapshot, store.dataset, store.copy, wants)
        yield spark, Jobs(spark, start)
    finally:
        spark.stop()


def _where(where: Where | str) -> Where:
    return Where(coordinator=where) if isinstance(where, str) else where


class _Look:
    """Finds publishers, with the permission for changes."""

    def __init__(self, where: Where) -> None:
        self._where = where

    def all(self) -> list[FoundPublisher]:
        """Every publisher. Raises :class:`~wormhole.model.errors.StreamBroken` if one does not answer."""
        answers = admin_service.ask(self._where)
        _check_silent(answers)
        return [_proven(one, one.status) for one in answers if one.status is not None]

    def __call__(self, wanted: Callable[[admin_pb2.PublisherStatus], bool]) -> list[FoundPublisher]:
        """See :class:`FindPublishers`."""
        answers = admin_service.ask(self._where)
        found = [_proven(one, one.status) for one in answers if one.status is not None and wanted(one.status)]
        if not found:
            _check_silent(answers)
        return found


def _check_silent(answers: Sequence[admin_service.Answer]) -> None:
    if silent := [one.problem for one in answers if one.silent]:
        raise StreamBroken("; ".join(silent), hint="start that publisher: the replay may include its flows")


def _proven(answer: admin_service.Answer, status: admin_pb2.PublisherStatus) -> FoundPublisher:
    shown = admin_service.proven(answer)  # tasks send their tickets to this address, so it is checked
    return FoundPublisher(status, Reach(shown.address, _from_anywhere(answer.tls), answer.tls_name), shown.local)


def _from_anywhere(tls: TlsFiles | None) -> TlsFiles | None:
    """The files with absolute paths, because executors have another working directory."""
    if tls is None:
        return None
    return TlsFiles(
        cert=tls.cert.absolute(),
        key=tls.key.absolute(),
        ca=tls.ca.absolute(),
        crl=None if tls.crl is None else tls.crl.absolute(),
    )


def _request(replay: Replay, seen: Sequence[FoundPublisher]) -> ReplayRequest:
    now_us = round(SYSTEM_CLOCK.wall() * 1e6)
    application = replay.application
    if replay.resume and not application:
        application = next(
            (
                flow.flow.partition("/")[0]
                for one in seen
                for flow in one.status.flows
                if flow.HasField("replay") and flow.replay.replay == replay.resume
            ),
            "",
        )
        if not application:
            raise UsageError(
                (
                    f"no flow is with a replay {replay.resume!r}: it is done, was cancelled, or its lease ran out and "
                    "the live log went on"
                ),
                hint="`wormholectl flows` shows their state",
            )
    return ReplayRequest(
        id=replay.resume or f"r-{secrets.token_hex(4)}",
        who=current_user(),
        application=application,
        shards=replay.shards,
        start=asked_from(replay.start, replay.since, now_us),
        stop=asked_until(replay.until, now_us),
        where=replay.where,
        snapshot=replay.snapshot,
        mode=replay.mode,
        rate=replay.rate,
        at_once=replay.at_once,
        patience_s=replay.patience_s,
        lease_s=replay.lease_s,
    )


def _as_said_here(config: Config | None, stored: DatasetConfig, archives: Sequence[str]) -> DatasetConfig:
    """``stored`` with the archive and the descriptor sets of the file ``config``, if the file has the dataset.

    These are folders, files and addresses, which a process that can write to ZooKeeper must not choose. If the file
    does not have the dataset, raises :class:`~wormhole.model.errors.UsageError` for settings that only ZooKeeper names.
    """
    own = None if config is None else config.datasets.get(stored.name)
    if own is None:
        check_archive(stored, archives)
        check_formats(stored.name, (stored.value_format, *stored.values.values()))
        return stored
    chosen = {"archive": own.archive, "value_format": own.value_format, "values": own.values}
    return stored.model_copy(update=chosen)


def setting_of(where: Where, application: str, archives: Sequence[str] = ()) -> ReplaySettings:
    """The settings of an application and its archive. ``archives``: the permitted archives if only ZooKeeper names it.

    Raises :class:`~wormhole.model.errors.UsageError` if the application or its archive is not configured.
    """

    async def configuration(coordinator: Coordinator) -> StoredConfig:
        return await coordinator.configuration()

    stored = with_coordinator(where, configuration)
    known = stored.applications.get(application)
    if known is None:
        raise UnknownApplication(
            f"no application {application!r} is configured",
            hint=admin_service.nearest(application, stored.applications, "application", "wormholectl flows"),
        )
    config = configured(where)
    dataset = _as_said_here(config, stored.datasets[known.dataset], archives)
    if dataset.archive is None:
        raise UsageError(
            f"dataset {dataset.name} of application {application} has no archive",
            hint=f'configure [datasets.{dataset.name}.archive] to = "...", and run `wormholectl archive run`',
        )
    publisher = PublisherConfig() if config is None else config.publisher
    tls = _from_anywhere(where.tls or (None if config is None else config.tls))
    return ReplaySettings(
        dataset=dataset,
        application=known,
        store=open_store(dataset.archive.to, dataset.name),
        tls=tls,
        heartbeat_s=publisher.heartbeat,
        max_frame=publisher.max_frame,
        grow_s=2 * dataset.archive.flush_every + 10,
        mask_key_file=None if publisher.mask_key_file is None else publisher.mask_key_file.absolute(),
    )
