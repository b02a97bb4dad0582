"""Plans the flows of a replay before any is held, and refuses a request that cannot be fulfilled."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from spark_replay.archive.manifest import FileEntry, Manifest
from spark_replay.archive.ranges import Asked, Range, files_between, held, range_of
from spark_replay.archive.reader import markers_of
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles
from spark_replay.replay.publisher import ReplayClient
from spark_replay.replay.request import FoundPublisher, ReplayRequest, ReplaySettings
from spark_replay.tables.start import about_start
from wormhole.config import FAILOVER
from wormhole.config.datastores import capabilities_of
from wormhole.filters import Filter
from wormhole.formats import ValueFormats
from wormhole.model.errors import ReplayError, UsageError, WormholeError
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_from_message
from wormhole.wire.problems import problem_of
from wormhole.wire.v1 import admin_pb2

__all__ = [
    "Filters",
    "FlowPlan",
    "check_free",
    "filters",
    "no_subscriber_takes",
    "plan",
    "resumed",
    "wants_of",
    "where_of",
]


@dataclass(slots=True)
class FlowPlan:
    """One flow to replay. ``files``: the files of its range. ``mode``, ``by_values`` and ``reason`` are decided later,
    unless the replay of the flow was already ``begun``. ``started_s``: when it began, by the publisher's clock; this
    time distinguishes the replay from a later one. ``lacks``: a text about a loss of the archive itself. Such a
    loss rules out the last change of each key as mode.

    ``first``: the flow's datamarker until all rows of a snapshot are pushed, which come before the range. The number of
    these rows (``snapshot_rows``) is counted later.
    """

    flow: str
    publisher: FoundPublisher
    range: Range
    files: tuple[FileEntry, ...]
    mode: str = "log"
    by_values: bool = False
    reason: str = ""
    begun: bool = False
    started_s: float = 0.0
    lacks: str = ""
    first: Datamarker | None = None
    snapshot_rows: int = 0

    @property
    def shard(self) -> str:
        """The flow's shard."""
        return self.range.shard

    @property
    def chosen(self) -> ShardFiles:
        """The rows of the range."""
        return ShardFiles(self.shard, self.files, self.range.begin, self.range.until)


@dataclass(frozen=True, slots=True)
class Filters:
    """The application's filter and the replay's own."""

    application: Filter
    where: Filter | None


def filters(request: ReplayRequest, settings: ReplaySettings, formats: ValueFormats) -> Filters:
    """The filters of a request. Raises :class:`~wormhole.model.errors.FilterError` for a ``where`` that does not parse,
    or that a replay cannot evaluate."""
    application = Filter.parse(settings.application.where or None, settings.application.tables, formats)
    if not request.where:
        return Filters(application, None)
    where = Filter.parse(request.where, formats=formats)
    where.check(capabilities_of(settings.source_kind))
    return Filters(application, where)


def plan(request: ReplayRequest, settings: ReplaySettings, seen: Sequence[FoundPublisher]) -> list[FlowPlan]:
    """The requested flows, the largest first, each with its range.

    Raises :class:`~wormhole.model.errors.UsageError` for shards that do not exist, and
    :class:`~wormhole.model.errors.ReplayError` if no publisher has a flow, or the archive does not hold the range. One
    error names all flows whose range it does not hold.
    """
    found = _meant(request, seen)
    places = _places(request, settings)
    plans, problems = [], []
    for one, flow in found:
        _check_copy(one, settings, flow.flow)
        try:
            plans.append(_planned(one, flow, settings.store, request, places.get(_shard(flow.flow))))
        except (ReplayError, UsageError) as error:
            problems.append(error)
    if problems:
        raise _together(problems)
    return sorted(plans, key=lambda each: (-each.range.bytes, each.flow))


def resumed(
    request: ReplayRequest, settings: ReplaySettings, seen: Sequence[FoundPublisher]
) -> tuple[list[FlowPlan], list[WormholeError]]:
    """The flows that a replay still has, as they were begun, and the problems of flows that cannot continue.

    A problem of one flow does not stop the others. Raises :class:`~wormhole.model.errors.UsageError` if the replay has
    no flow, and an error with all problems if no flow can continue.
    """
    found = [
        (one, flow)
        for one in seen
        for flow in one.status.flows
        if flow.HasField("replay") and flow.replay.replay == request.id
    ]
    if not found:
        others = sorted({flow.replay.replay for one in seen for flow in one.status.flows if flow.HasField("replay")})
        raise UsageError(
            f"no flow is with a replay {request.id!r}: it is done, was cancelled, or its lease ran out and the "
            "live log went on",
            hint=f"replays that have flows: {', '.join(others)}" if others else "`wormholectl flows` shows their state",
        )
    places = _places(request, settings)
    plans: list[FlowPlan] = []
    problems: list[WormholeError] = []
    for one, flow in found:
        try:
            _check_copy(one, settings, flow.flow)
            plans.append(_taken_up(one, flow, settings.store, request, places.get(_shard(flow.flow))))
        except ReplayError as error:
            problems.append(error.at(shard=_shard(flow.flow), flow=flow.flow))
    if not plans:
        raise _together(problems)
    return sorted(plans, key=lambda each: (-each.range.bytes, each.flow)), problems


def where_of(plans: Sequence[FlowPlan]) -> str:
    """The filter with which a replay was begun. All flows of the replay have the same filter."""
    return next(
        (flow.replay.where for one in plans for flow in one.publisher.status.flows if flow.flow == one.flow), ""
    )


def no_subscriber_takes(application: str, plans: Iterable[FlowPlan]) -> ReplayError | None:
    """The error if a flow has no connected subscriber now; ``None`` if the publisher of each flow has one.

    Each publisher has its own streams, so each is checked."""
    for one in plans:
        members = [each for each in one.publisher.status.subscribers if each.application == application]
        if not any(each.state == "connected" for each in members):
            why = "; ".join(f"{each.subscriber}: {problem_of(each).text or each.state}" for each in members)
            return ReplayError(
                f"the updates cannot be delivered: no subscriber of {application} is connected"
                + (f" ({why})" if why else ""),
                flow=one.flow,
                hint=f"start a subscriber of {application}; `wormholectl subscribers` lists them",
            )
    return None


def check_free(request: ReplayRequest, plans: Iterable[FlowPlan]) -> None:
    """Ask each publisher, without changing anything, whether the replay of its flow can begin.

    Raises :class:`~wormhole.model.errors.ReplayError` for a flow that another replay has, and the publisher's refusal.
    """
    for one in plans:
        with ReplayClient(one.publisher.reach, one.flow, request.id, local=one.publisher.local) as client:
            reply = client.begin(admin_pb2.BeginReplay(who=request.who, preview=True, mode=admin_pb2.LOG))
        other = reply.replay
        if reply.HasField("replay") and other.replay != request.id and other.lease_left_s > 0:
            raise ReplayError(
                f"replay {other.replay} of {other.who} has it",
                flow=one.flow,
                hint=f"`wormholectl replay --resume {other.replay}` goes on with that one, `wormholectl replay "
                f"--cancel {other.replay}` ends it",
            )


_Found = list[tuple[FoundPublisher, admin_pb2.FlowStatus]]


def _meant(request: ReplayRequest, seen: Sequence[FoundPublisher]) -> _Found:
    mine = [
        (one, flow) for one in seen for flow in one.status.flows if flow.flow.partition("/")[0] == request.application
    ]
    if not mine:
        raise ReplayError(
            f"no publisher has a flow of application {request.application!r}",
            hint="start the publishers of its dataset; `wormholectl flows` lists what there is",
        )
    names = [_shard(flow.flow) for _, flow in mine]
    for pattern in request.shards:
        if not fnmatch.filter(names, pattern):
            close = difflib.get_close_matches(pattern, names, n=3, cutoff=0.5)
            raise UsageError(
                f"application {request.application} has no shard {pattern!r}",
                hint=f"did you mean {' or '.join(close)}?" if close else f"its shards: {', '.join(sorted(names)[:20])}",
            )
    return [
        (one, flow)
        for one, flow in mine
        if not request.shards or any(fnmatch.fnmatchcase(_shard(flow.flow), pattern) for pattern in request.shards)
    ]


def _check_copy(one: FoundPublisher, settings: ReplaySettings, flow: str) -> None:
    store = settings.store
    if not settings.archives(one.status.copy):
        follow = f'let the application follow `copy = "{store.copy}"`'
        if store.copy == FAILOVER:
            follow = "let the application leave `copy` out"
        raise ReplayError(
            f"the archive in {store.to} was made of copy {store.copy}, the flow follows {one.status.copy}: "
            "their places do not compare",
            flow=flow,
            hint=f"{follow}, or archive {one.status.copy}",
        )


def wants_of(settings: ReplaySettings) -> Callable[[str], bool]:
    """A test whether the application wants a table: whether its filter may select any update of it."""
    application = Filter.parse(settings.application.where or None, settings.application.tables)
    return lambda table: not application.wants_none_of(table)


def _places(request: ReplayRequest, settings: ReplaySettings) -> Mapping[str, Datamarker]:
    if not request.snapshot:
        return {}
    about = about_start(request.snapshot, settings.store.dataset, settings.store.copy, wants_of(settings))
    return {shard: one.marker for shard, one in about.shards.items()}


def _goes_on(manifest: Manifest, place: Datamarker | None, stored: Datamarker) -> Datamarker:
    """The place after a snapshot from which the archive continues, checked for a flow.

    ``place``: the end of the snapshot. ``stored``: the flow's datamarker.
    """
    if place is None:
        raise ReplayError(
            f"the archive does not reach back to {stored.order}, and no snapshot holds what is before: "
            f"{held(manifest)}",
            shard=manifest.shard,
            hint="if the replay was begun with a snapshot, name it again: --snapshot FOLDER; else write a newer one",
        )
    if not manifest.begin.order <= place.order <= manifest.end.order:
        raise ReplayError(
            f"the archive does not go on where the snapshot ends, {place.order}: {held(manifest)}",
            shard=manifest.shard,
            hint="write a snapshot of what the archive holds now: `wormholectl snapshot`",
        )
    if not manifest.whole and stored.order >= manifest.begin.order:
        raise ReplayError(
            f"the flow's datamarker is {stored.order}, and the archive begins at {manifest.begin.order} and not at "
            "the first row any more: "
            "if this ended half way, missing rows would go unnoticed",
            shard=manifest.shard,
            hint="give the snapshot to an application that has not begun yet: another name, or one whose datamarker "
            "is before that",
        )
    return place


def _check_same(replay: str, status: admin_pb2.ReplayStatus, place: Datamarker, flow: str) -> None:
    """Check that a resumed replay has the snapshot with which it was begun.

    The progress of the first pass is a place among the rows of that snapshot. With another snapshot some rows would
    never be pushed, or would stay although they were deleted."""
    if status.HasField("snapshot") and marker_from_message(status.snapshot).order == place.order:
        return
    ends = marker_from_message(status.snapshot).order
    begun = f"with one that ends at {ends}" if status.HasField("snapshot") else "without"
    raise ReplayError(
        f"the snapshot ends at {place.order}, and the replay was begun {begun}",
        flow=flow,
        hint=f"take it up as it was begun; or `wormholectl replay --cancel {replay}`, then give this snapshot to an "
        "application that has not begun yet",
    )


def _planned(
    one: FoundPublisher,
    flow: admin_pb2.FlowStatus,
    store: ArchiveStore,
    request: ReplayRequest,
    place: Datamarker | None,
) -> FlowPlan:
    shard = _shard(flow.flow)
    stored = marker_from_message(flow.marker)
    manifest = _manifest(store, shard)
    begin, first = stored, None
    start = Asked(earliest=True) if request.snapshot else request.start
    if place is not None:
        begin, start = _goes_on(manifest, place, stored), Asked()
        first = manifest.begin if manifest.whole and manifest.begin.order < stored.order else stored
    chosen = range_of(manifest, begin, start, request.stop, partial(markers_of, store, shard))
    if first is not None:
        chosen = replace(chosen, rewinds=first.order < stored.order)
    files = files_between(manifest, chosen.begin, chosen.until)
    lost = [loss for loss in manifest.losses if chosen.begin.order < loss.resume.order <= chosen.until.order]
    lacks = f"the archive itself lacks what is before {lost[0].resume.order}" if lost else ""
    return FlowPlan(flow.flow, one, chosen, files, lacks=lacks, first=first)


def _taken_up(
    one: FoundPublisher,
    flow: admin_pb2.FlowStatus,
    store: ArchiveStore,
    request: ReplayRequest,
    place: Datamarker | None,
) -> FlowPlan:
    status, shard = flow.replay, _shard(flow.flow)
    manifest = _manifest(store, shard)
    opened = status.attempts or not status.HasField("begin")
    begin = marker_from_message(flow.marker if opened else status.begin)
    until, first = marker_from_message(status.until), None
    lacking = begin.order < manifest.begin.order and not manifest.whole
    if lacking or (place is not None and begin.order <= manifest.begin.order):
        # The datamarker stays at the beginning until the whole snapshot is pushed.
        first, begin = begin, _goes_on(manifest, place, begin)
        _check_same(request.id, status, begin, flow.flow)
    files = files_between(manifest, begin, until)
    rows, size = sum(entry.rows for entry in files), sum(entry.bytes for entry in files)
    mode = "latest" if status.mode == admin_pb2.LATEST else "log"
    range_, started_s = Range(shard, begin, until, False, rows, size), status.started_s
    return FlowPlan(flow.flow, one, range_, files, mode, begun=True, started_s=started_s, first=first)


def _manifest(store: ArchiveStore, shard: str) -> Manifest:
    manifest = store.read(shard)
    if manifest is None:
        held = ", ".join(store.shards()[:20]) or "none"
        raise ReplayError(
            f"the archive in {store.to} holds nothing of {shard}; it has {held}",
            shard=shard,
            hint="does the archiver run? `wormholectl archive run`; `wormholectl archive show` lists what is there",
        )
    return manifest


def _together(problems: Sequence[WormholeError]) -> WormholeError:
    if len(problems) == 1:
        return problems[0]
    kind = type(problems[0])
    lines = [f"{error.shard}: {error.message}" for error in problems]
    return kind("; ".join(lines), hint=problems[0].hint)


def _shard(flow: str) -> str:
    return flow.partition("/")[2]
