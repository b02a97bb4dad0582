"""``wormholectl replay``: what is configured and who answers, handed to the job."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wormhole.admin import admin_service
from wormhole.admin.discovery import configured, with_coordinator
from wormhole.config import Config, DatasetConfig, TlsFiles
from wormhole.config.processes import PublisherConfig
from wormhole.coordination import Coordinator, StoredConfig
from wormhole.coordination.current_user import current_user
from wormhole.model.errors import StreamBroken, UnknownApplication, UsageError
from wormholectl.archive_choice import check_archive, check_formats
from wormholectl.errors import BROKEN, needs
from wormholectl.options import Where, now
from wormholectl.show.replays import Teller, show_cancelled, show_plan, show_reports

if TYPE_CHECKING:
    from spark_replay.replay.mode import Wanted
    from spark_replay.replay.request import FoundPublisher, ReplayRequest, ReplaySettings

__all__ = ["Request", "cancel", "replay", "setting_of"]


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line was given, texts checked as far as they need nothing else. ``archives``: that may be read
    though only ZooKeeper names them.
    """

    application: str
    archives: tuple[str, ...]
    shards: tuple[str, ...]
    start: str
    since: str
    until: str
    where: str
    snapshot: str
    mode: Wanted
    rate: float
    master: str
    patience_s: float
    lease_s: float
    resume: str
    dry_run: bool
    as_json: bool


@needs("spark")
def replay(where: Where, request: Request) -> int:
    """Replay, or with ``dry_run`` tell what it would be. Returns the exit code: 1 when a flow was not handed over.

    Raises :class:`~wormhole.model.errors.WormholeError`; until a flow is held nothing is changed.
    """
    from spark_replay.spark import session

    session.check_spark()
    from spark_replay.replay import flow_plans, mode_selection
    from spark_replay.replay.driver import Driver
    from spark_replay.replay.jobs import Jobs
    from spark_replay.tables.snapshot import start_rows

    look = _Look(where)
    seen = look()
    wish = _wish(request, seen)
    setting = setting_of(where, wish.application, request.archives)
    formats = setting.formats.open()
    if request.resume:
        plans, left_out = flow_plans.resumed(wish, setting, seen)
        wish = replace(wish, where=flow_plans.where_of(plans))
        filters = flow_plans.filters(wish, setting, formats)
    else:
        filters = flow_plans.filters(wish, setting, formats)
        plans, left_out = flow_plans.plan(wish, setting, seen), []
    nobody = flow_plans.nobody_takes(wish.application, plans)
    if nobody is not None and not request.dry_run:
        raise nobody
    if not request.resume:
        flow_plans.check_free(wish, plans)
    teller = Teller(wish.id, as_json=request.as_json)
    for problem in left_out:
        teller.says(f"left as it is: {problem}")
    slots = session.local_slots(request.master)
    if request.dry_run and slots and not wish.snapshot and mode_selection.needs_no_spark(plans):
        estimates = mode_selection.decide(None, wish, setting, filters, plans, counts=True)
        show_plan(plans, estimates, slots, request.rate, nobody, as_json=request.as_json)
        return 0
    teller.says("starting Spark")
    spark = session.spark_session(f"wormhole replay {wish.id}", request.master or None)
    try:
        start = None
        if wish.snapshot:
            start = start_rows(spark, wish.snapshot, setting.store.dataset, setting.store.copy)
        jobs = Jobs(spark, start)
        estimates = mode_selection.decide(spark, wish, setting, filters, plans, counts=request.dry_run)
        mode_selection.count_snapshot(jobs, plans)
        if request.dry_run:
            show_plan(plans, estimates, jobs.slots, request.rate, nobody, as_json=request.as_json)
            return 0
        jobs.warm()  # first: only then it is known how many tasks run at one time
        driver = Driver(wish, setting, plans, look, jobs, teller)
        teller.says(f"replay {wish.id}: {len(plans)} flows; if this ends early, `{wish.resume_command}` goes on")
        reports = driver.run()
    finally:
        teller.close()
        spark.stop()
    show_reports(wish.id, reports, as_json=request.as_json)
    return 0 if all(one.handed_over for one in reports) and not left_out else BROKEN


@needs("spark")
def cancel(where: Where, replay_id: str, as_json: bool) -> int:
    """Give every flow of a replay back: live, or in need of a replay.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    from spark_replay.replay.publisher import ReplayClient

    mine = [
        (one, flow.flow)
        for one in _Look(where)()
        for flow in one.status.flows
        if flow.HasField("replay") and flow.replay.replay == replay_id
    ]
    if not mine:
        raise UsageError(
            f"no flow is with a replay {replay_id!r}", hint="`wormholectl flows` tells which are with which"
        )
    told = []
    for one, flow in mine:
        with ReplayClient(one.reach, flow, replay_id, local=one.local) as client:
            told.append((flow, client.cancel(current_user()).flow.state))
    show_cancelled(replay_id, told, as_json=as_json)
    return 0


class _Look:
    """Every publisher that can be found, with what permits changes there."""

    def __init__(self, where: Where) -> None:
        self._where = where

    def __call__(self) -> list[FoundPublisher]:
        from spark_replay.replay.publisher import Reach
        from spark_replay.replay.request import FoundPublisher

        answers = [one for one in admin_service.ask(self._where) if one.drained is None]
        if silent := [one.problem for one in answers if one.silent]:
            raise StreamBroken("; ".join(silent), hint="start that publisher: its flows may be meant")
        found = []
        for one in answers:
            shown = admin_service.proven(one)  # tasks give their tickets to that address
            assert one.status is not None
            found.append(
                FoundPublisher(one.status, Reach(shown.address, _from_anywhere(one.tls), one.tls_name), shown.local)
            )
        return found


def _from_anywhere(tls: TlsFiles | None) -> TlsFiles | None:
    """With absolute paths: executors have another working directory."""
    if tls is None:
        return None
    return TlsFiles(
        cert=tls.cert.absolute(),
        key=tls.key.absolute(),
        ca=tls.ca.absolute(),
        crl=None if tls.crl is None else tls.crl.absolute(),
    )


def _wish(request: Request, seen: Sequence[FoundPublisher]) -> ReplayRequest:
    from spark_replay.replay.plan import asked_from, asked_until
    from spark_replay.replay.request import ReplayRequest

    now_us = round(now() * 1e6)
    application = request.application
    if request.resume and not application:
        application = next(
            (
                flow.flow.partition("/")[0]
                for one in seen
                for flow in one.status.flows
                if flow.HasField("replay") and flow.replay.replay == request.resume
            ),
            "",
        )
        if not application:
            raise UsageError(
                (
                    f"no flow is with a replay {request.resume!r}: it is done, was cancelled, or its lease ran out and "
                    "the live log went on"
                ),
                hint="`wormholectl flows` tells how they are",
            )
    return ReplayRequest(
        id=request.resume or f"r-{secrets.token_hex(4)}",
        who=current_user(),
        application=application,
        shards=request.shards,
        start=asked_from(request.start, request.since, now_us),
        stop=asked_until(request.until, now_us),
        where=request.where,
        snapshot=request.snapshot,
        mode=request.mode,
        rate=request.rate,
        patience_s=request.patience_s,
        lease_s=request.lease_s,
    )


def _as_said_here(config: Config | None, stored: DatasetConfig, archives: Sequence[str]) -> DatasetConfig:
    """``stored`` with the archive and the descriptor sets that the file names, where it has the dataset: they are
    folders, files and addresses, and who can write to ZooKeeper shall not choose them. Raises
    :class:`~wormhole.model.errors.UsageError` for others.
    """
    own = None if config is None else config.datasets.get(stored.name)
    if own is None:
        check_archive(stored, archives)
        check_formats(stored.name, (stored.value_format, *stored.values.values()))
        return stored
    chosen = {"archive": own.archive, "value_format": own.value_format, "values": own.values}
    return stored.model_copy(update=chosen)


def setting_of(where: Where, application: str, archives: Sequence[str] = ()) -> ReplaySettings:
    """What is configured of an application and its archive; ``archives``: those that it may be if only ZooKeeper names
    it. Raises :class:`~wormhole.model.errors.UsageError` where there is none.
    """
    from spark_replay.archive.store import open_store
    from spark_replay.replay.request import ReplaySettings

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
