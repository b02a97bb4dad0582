"""``wormholectl replay``: what is configured and who answers, handed to the job; and how that goes, drawn or told."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from wormhole.cli import admin_client
from wormhole.cli.discovery import Where, configured, with_coordinator
from wormhole.cli.guard import BROKEN, lazily
from wormhole.cli.output import print_json, print_table, size, span
from wormhole.cli.render import SCHEMA
from wormhole.config import TlsFiles
from wormhole.config.processes import PublisherConfig
from wormhole.coordination import Coordinator, StoredConfig
from wormhole.errors import StreamBroken, UnknownApplication, UsageError
from wormhole.who import who

if TYPE_CHECKING:
    from spark_replay.replay.planning import FlowPlan
    from spark_replay.replay.progress import Progress
    from spark_replay.replay.wish import FlowReport, Seen, Setting, Wish

__all__ = ["Asking", "cancel", "replay", "setting_of"]

_WIDTH: Final = 24
_LINE_EVERY_S: Final = 10.0
# What one task pushes to a subscriber that takes it as fast as it comes: docs/benchmarks.md.
_UPDATES_PER_S, _BYTES_PER_S = 400_000, 60 << 20


@dataclass(frozen=True, slots=True)
class Asking:
    """What the command line was given, texts checked as far as they need nothing else."""

    application: str
    shards: tuple[str, ...]
    start: str
    since: str
    until: str
    where: str
    mode: str
    rate: float
    master: str
    patience_s: float
    lease_s: float
    resume: str
    dry_run: bool
    as_json: bool


def replay(where: Where, asking: Asking) -> int:
    """Replay, or with ``dry_run`` tell what it would be. Returns the exit code: 1 when a flow was not handed over.

    Raises :class:`~wormhole.errors.WormholeError`; until a flow is held nothing is changed.
    """
    session = lazily("spark_replay.spark.session", "spark")
    session.check_spark()
    planning = lazily("spark_replay.replay.planning", "spark")
    look = _Look(where)
    seen = look()
    wish = _wish(asking, seen)
    setting = setting_of(where, wish.application)
    formats = setting.formats.open()
    if asking.resume:
        plans = planning.resumed(wish, setting, seen)
        wish = replace(wish, where=planning.where_of(plans))
        filters = planning.filters(wish, setting, formats)
    else:
        filters = planning.filters(wish, setting, formats)
        plans = planning.plan(wish, setting, seen)
        planning.check_free(wish, plans)
    teller = _Teller(wish, asking.as_json)
    teller.says("starting Spark")
    spark = session.spark_session(f"wormhole replay {wish.id}", asking.master or None)
    try:
        choosing = lazily("spark_replay.replay.choosing", "spark")
        estimates = choosing.decide(spark, wish, setting, filters, plans, counts=asking.dry_run)
        jobs = lazily("spark_replay.replay.jobs", "spark").Jobs(spark)
        if asking.dry_run:
            _show_plan(wish, plans, estimates, jobs.slots, asking)
            return 0
        driver = lazily("spark_replay.replay.driver", "spark").Driver(wish, setting, plans, look, jobs, teller)
        teller.says(
            f"replay {wish.id}: {len(plans)} flows; if this ends early, `wormholectl replay --resume {wish.id}` goes on"
        )
        reports = driver.run()
    finally:
        teller.close()
        spark.stop()
    _show_reports(wish, reports, asking)
    return 0 if all(one.handed_over for one in reports) else BROKEN


def cancel(where: Where, replay_id: str, as_json: bool) -> int:
    """Give every flow of a replay back: live, or in need of a replay. Raises :class:`~wormhole.errors.WormholeError`."""
    publisher = lazily("spark_replay.replay.publisher", "spark")
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
        with publisher.ReplayClient(one.reach, flow, replay_id, token=one.token) as client:
            told.append((flow, client.cancel(who()).flow.state))
    if as_json:
        print_json({"schema": SCHEMA, "replay": replay_id, "flows": [{"flow": f, "state": s} for f, s in told]})
    else:
        print_table(("FLOW", "STATE"), told, "")
    return 0


class _Look:
    """Every publisher that can be found, with what permits changes there."""

    def __init__(self, where: Where) -> None:
        self._where = where

    def __call__(self) -> list[Seen]:
        wishes = lazily("spark_replay.replay.wish", "spark")
        reach = lazily("spark_replay.replay.publisher", "spark").Reach
        answers = admin_client.ask(self._where)
        if silent := [one.problem for one in answers if one.status is None]:
            raise StreamBroken("; ".join(silent), hint="start that publisher: its flows may be meant")
        return [
            wishes.Seen(one.status, reach(one.address, one.tls, one.tls_name), admin_client.credential(one))
            for one in answers
        ]


def _wish(asking: Asking, seen: Sequence[Seen]) -> Wish:
    wishes = lazily("spark_replay.replay.wish", "spark")
    plan = lazily("spark_replay.replay.plan", "spark")
    now_us = round(time.time() * 1e6)
    application = asking.application
    if asking.resume and not application:
        application = next(
            (
                flow.flow.partition("/")[0]
                for one in seen
                for flow in one.status.flows
                if flow.HasField("replay") and flow.replay.replay == asking.resume
            ),
            "",
        )
        if not application:
            raise UsageError(
                f"no flow is with a replay {asking.resume!r}: it is done, was cancelled, or its lease ran out and the live log went on",
                hint="`wormholectl flows` tells how they are",
            )
    wish: Wish = wishes.Wish(
        id=asking.resume or f"r-{secrets.token_hex(4)}",
        who=who(),
        application=application,
        shards=asking.shards,
        start=plan.asked_from(asking.start, asking.since, now_us),
        stop=plan.asked_until(asking.until, now_us),
        where=asking.where,
        mode=asking.mode,
        rate=asking.rate,
        patience_s=asking.patience_s,
        lease_s=asking.lease_s,
    )
    return wish


def setting_of(where: Where, application: str) -> Setting:
    """What is configured of an application and its archive. Raises :class:`~wormhole.errors.UsageError` where there is none."""

    async def configuration(coordinator: Coordinator) -> StoredConfig:
        return await coordinator.configuration()

    stored = with_coordinator(where, configuration)
    known = stored.applications.get(application)
    if known is None:
        raise UnknownApplication(
            f"no application {application!r} is configured",
            hint=admin_client.nearest(application, stored.applications, "application", "wormholectl flows"),
        )
    dataset = stored.datasets[known.dataset]
    if dataset.archive is None:
        raise UsageError(
            f"dataset {dataset.name} of application {application} has no archive",
            hint=f'configure [datasets.{dataset.name}.archive] to = "...", and run `wormholectl archive run`',
        )
    config = configured(where)
    publisher = PublisherConfig() if config is None else config.publisher
    tls: TlsFiles | None = where.tls or (None if config is None else config.tls)
    setting: Setting = lazily("spark_replay.replay.wish", "spark").Setting(
        dataset=dataset,
        application=known,
        store=lazily("spark_replay.archive.store", "spark").open_store(dataset.archive.to, dataset.name),
        tls=tls,
        heartbeat_s=publisher.heartbeat,
        max_frame=publisher.max_frame,
        grow_s=2 * dataset.archive.flush_every + 10,
    )
    return setting


class _Teller:
    """Progress on standard error: a bar in a terminal, a line now and then elsewhere; objects on standard output for programs."""

    def __init__(self, wish: Wish, as_json: bool) -> None:
        self._id = wish.id
        self._as_json = as_json
        self._drawn = 0
        self._line_at = 0.0
        self._bar = sys.stderr.isatty() and not as_json

    def says(self, text: str) -> None:
        self._clear()
        print(text, file=sys.stderr, flush=True)

    def moves(self, progress: Progress) -> None:
        if self._as_json:
            print_json(
                {"schema": SCHEMA, "replay": self._id, "progress": {**asdict(progress), "share": progress.share}}
            )
            return
        text = bar(progress)
        if self._bar:
            sys.stderr.write(f"\r{text:<{self._drawn}}")
            sys.stderr.flush()
            self._drawn = len(text)
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + _LINE_EVERY_S
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._drawn:
            print(file=sys.stderr)
        self._drawn = 0

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write(f"\r{'':<{self._drawn}}\r")
        self._drawn = 0


def bar(progress: Progress) -> str:
    """One line: how far, how fast, for how long still."""
    filled = int(progress.share * _WIDTH)
    left = "" if progress.left_s is None or progress.share >= 1 else f"  {span(progress.left_s)} left"
    finished, flows = progress.flows
    return (
        f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {progress.share:4.0%}  {progress.updates:,} updates  "
        f"{progress.updates_per_s:,.0f}/s  {size(progress.bytes_per_s)}/s{left}  {finished} of {flows} flows done"
    )


def _show_plan(wish: Wish, plans: Sequence[FlowPlan], estimates: dict[str, Any], slots: int, asking: Asking) -> None:
    rows, objects = [], []
    for one in plans:
        counted = estimates[one.shard]
        rows.append(
            (
                one.flow,
                str(one.range.begin.order),
                str(one.range.until.order),
                f"{counted.updates:,}",
                size(counted.bytes),
                f"{counted.keys:,}",
                one.mode,
                one.reason,
            )
        )
        objects.append(
            {
                "flow": one.flow,
                "from": str(one.range.begin.order),
                "until": str(one.range.until.order),
                "updates": counted.updates,
                "bytes": counted.bytes,
                "keys": counted.keys,
                "mode": one.mode,
                "reason": one.reason,
            }
        )
    seconds = _seconds(plans, estimates, slots, asking.rate)
    if asking.as_json:
        print_json({"schema": SCHEMA, "dry_run": True, "flows": objects, "seconds": round(seconds, 1)})
        return
    print_table(("FLOW", "FROM", "UNTIL", "UPDATES", "SIZE", "KEYS", "MODE", "WHY"), rows, "nothing to replay")
    print(
        f"about {span(seconds)} with {min(slots, len(plans) or 1)} tasks at a time, if the subscribers keep up; "
        "nothing is held and nothing was changed"
    )


def _seconds(plans: Sequence[FlowPlan], estimates: dict[str, Any], slots: int, rate: float) -> float:
    """How long it takes about: the slowest flow, or all of them over the tasks."""
    each = []
    for one in plans:
        counted = estimates[one.shard]
        updates = counted.keys if one.mode == "latest" else counted.updates
        bytes_ = counted.bytes * updates / counted.updates if counted.updates else 0.0
        each.append(max(updates / _UPDATES_PER_S, bytes_ / _BYTES_PER_S))
    bytes_all = sum(estimates[one.shard].bytes for one in plans)
    return max([sum(each) / slots, bytes_all / rate if rate else 0.0, *each], default=0.0)


def _show_reports(wish: Wish, reports: Sequence[FlowReport], asking: Asking) -> None:
    if asking.as_json:
        print_json({"schema": SCHEMA, "replay": wish.id, "flows": [asdict(one) for one in reports]})
        return
    print_table(
        ("FLOW", "MODE", "UPDATES", "SIZE", "UP TO", "STATE"),
        [(one.flow, one.mode, f"{one.updates:,}", size(one.bytes), one.marker, one.state) for one in reports],
        "nothing was to be replayed",
    )
    for one in reports:
        if one.message:
            print(f"{one.flow}: {one.message}")
            if one.hint:
                print(f"  next: {one.hint}")
