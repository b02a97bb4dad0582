"""The range of a replay: from a request to the datamarkers between which a shard's updates are pushed. Pure.

A range begins and ends at datamarkers of the publisher: the flow's own, and those in manifests and footers of files. If
the request is a place or a time, the nearest datamarkers that cover it are used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spark_replay.archive.coverage import chain_problems
from spark_replay.archive.manifest import FileEntry, Manifest
from wormhole.model.errors import ArchiveError, PositionError, ReplayError, UsageError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.units import parse_duration
from wormhole.model.values import Op

__all__ = [
    "Asked",
    "Range",
    "asked_from",
    "asked_time",
    "asked_until",
    "done_rows",
    "files_between",
    "held",
    "holding",
    "range_of",
]

Markers = Callable[[FileEntry], Sequence[Datamarker]]
"""The datamarkers of a file's footer, ascending."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One end of a range, as it was requested. If all fields are empty, it is the flow's own datamarker, or the end of
    the archive.

    ``earliest``: the beginning of the archive. ``at_us``: a time, microseconds since 1970. ``text``: the request, for
    messages.
    """

    text: str = ""
    earliest: bool = False
    place: LogPosition | None = None
    at_us: int | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """The part of one shard that is replayed: every update after ``begin`` and before ``until``.

    ``rewinds``: ``begin`` was requested, so the flow's datamarker is set back to it, also if the datamarker has moved
    on since it was read. ``rows``: about the number of updates, by the files' entries.
    """

    shard: str
    begin: Datamarker
    until: Datamarker
    rewinds: bool
    rows: int
    bytes: int


def asked_from(start: str, since: str, now_us: int) -> Asked:
    """``--from`` (``marker``, ``earliest``, a place, a time) or ``--since`` (a time span back from now, or a time).

    Raises :class:`~wormhole.model.errors.UsageError`.
    """
    if start and since:
        raise UsageError("--from and --since both say where the replay begins", hint="give one of them")
    if since:
        return asked_time(since, "--since", now_us)
    if start in ("", "marker"):
        return Asked()
    if start == "earliest":
        return Asked(start, earliest=True)
    return _place_or_time(start, "--from", "marker, earliest", now_us)


def asked_until(until: str, now_us: int) -> Asked:
    """``--until``: ``end``, a place, a time, or a time span back from now.

    Raises :class:`~wormhole.model.errors.UsageError`.
    """
    return Asked() if until in ("", "end") else _place_or_time(until, "--until", "end", now_us)


def _place_or_time(text: str, option: str, words: str, now_us: int) -> Asked:
    try:
        return Asked(text, place=LogPosition.parse(text))
    except PositionError as error:
        if text.count("/") == 2:
            raise UsageError(f"{option} {text}: {error.message}", hint=error.hint, code=error.code) from None
    try:
        return asked_time(text, option, now_us)
    except UsageError:
        raise UsageError(
            f"{option} {text} is neither {words}, a place nor a time",
            hint=f"for example {option} 1/42/32768, {option} 2026-05-01T12:00:00Z or {option} 2h",
        ) from None


def asked_time(text: str, option: str, now_us: int) -> Asked:
    """A time, or a span back from now. A time without a zone is UTC.

    Raises :class:`~wormhole.model.errors.UsageError`, which names ``option``.
    """
    try:
        return Asked(text, at_us=now_us - round(parse_duration(text) * 1e6))
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} {text} is no time", hint=f"for example {option} 2h, or {option} 2026-05-01T12:00:00Z"
        ) from None
    return Asked(text, at_us=round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1e6))


def files_between(manifest: Manifest, begin: Datamarker, until: Datamarker) -> tuple[FileEntry, ...]:
    """The files that may have rows between two datamarkers, in order.

    Rows that a backfill read at a datamarker's place are on both sides of it.
    """

    def between(entry: FileEntry) -> bool:
        if entry.ops.get(Op.READ.value):
            return entry.end.order >= begin.order and entry.begin.order <= until.order
        return entry.end.order > begin.order and entry.begin.order < until.order

    return tuple(entry for entry in manifest.files if entry.rows and between(entry))


def done_rows(files: Sequence[FileEntry], place: LogPosition) -> int:
    """About how many rows of the files are before ``place``. It assumes that the rows of a file are evenly spread."""
    rows = 0
    for entry in files:
        if entry.end.order <= place:
            rows += entry.rows
        elif entry.begin.order < place:
            begin, end = entry.begin.order, entry.end.order
            even = begin.file == end.file and begin.incarnation == end.incarnation
            rows += (
                entry.rows * (place.offset - begin.offset) // (end.offset - begin.offset) if even else entry.rows // 2
            )
    return rows


def held(manifest: Manifest) -> str:
    """The range of a shard in the archive, as places and times, for messages."""
    if not manifest.files:
        return f"the archive of {manifest.shard} holds nothing yet; it begins at {manifest.begin.order}"
    times = [entry.first_us for entry in manifest.files if entry.first_us]
    last = max(entry.last_us for entry in manifest.files)
    span = f", committed from {_utc(min(times))} to {_utc(last)}" if times else ""
    return f"the archive of {manifest.shard} holds {manifest.begin.order} to {manifest.end.order}{span}"


def holding(manifest: Manifest | None, shard: str, begin: Datamarker, until: Datamarker) -> Manifest:
    """The shard's newest manifest, if the archive holds everything between two datamarkers.

    Raises :class:`~wormhole.model.errors.ReplayError` if it does not, or no longer.
    """
    hint = (
        "retention let it go, so `keep` of the archive has to be longer than a replay takes, or the application went "
        "back behind it: "
        "restore the files from a backup, begin with a snapshot (--snapshot), or go on without it: `wormholectl flows "
        "accept-loss`"
    )
    if manifest is None:
        why = f"nothing is archived of {shard}"
    elif until.order > manifest.end.order:
        why = f"its manifests were set back, {held(manifest)}"
        hint = (
            "put the newer manifests back, then take the replay up again; "
            "`wormholectl archive verify` lists what else is missing"
        )
    elif begin.order < manifest.begin.order and not manifest.whole:
        why = held(manifest)
    else:
        return manifest
    raise ReplayError(
        f"{begin.order} to {until.order} is not held: {why}", shard=shard, hint=hint, code="archive-lacks-range"
    )


def _utc(us: int) -> str:
    try:
        return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # the writer used another unit
        return f"{us} us"


def range_of(manifest: Manifest, stored: Datamarker, start: Asked, stop: Asked, markers: Markers) -> Range:
    """The range of one shard whose flow's datamarker is ``stored``.

    Raises :class:`~wormhole.model.errors.ReplayError` for a range that the archive does not hold, with the range that
    it holds; :class:`~wormhole.model.errors.ArchiveError` for a manifest whose files are not a chain; and
    :class:`~wormhole.model.errors.UsageError` for a range that begins after the flow's datamarker, or ends before it
    begins.
    """
    if problems := chain_problems(manifest):
        raise ArchiveError(
            f"the manifest of {manifest.shard} is damaged: {problems[0]}",
            shard=manifest.shard,
            hint="restore it from a backup; `wormholectl archive verify` shows what else is wrong",
        )
    begin = _begin(manifest, stored, start, markers)
    if manifest.whole and begin.order == manifest.begin.order > stored.order:
        begin = stored  # nothing was ever written to the shard before the archive begins
    until = _until(manifest, stop, markers)
    if begin.order > stored.order:
        raise UsageError(
            (
                f"the range begins at {begin.order}, behind the flow's datamarker {stored.order}: what lies between "
                "would never be delivered"
            ),
            shard=manifest.shard,
            hint="leave out --from, or name an earlier place; what the archive lacks can be gone without only by "
            "`wormholectl flows accept-loss`",
        )
    if until.order < begin.order:
        if not stop.text:
            raise ReplayError(
                f"the flow's datamarker {begin.order} lies behind the end of the archive: {held(manifest)}",
                shard=manifest.shard,
                hint=(
                    "there is nothing to replay; if the archive should be further, look at the archiver: "
                    "`wormholectl why-lag`"
                ),
                code="archive-lacks-range",
            )
        raise UsageError(
            f"--until {stop.text} lies before the beginning of the range, {begin.order}",
            shard=manifest.shard,
            hint=f"{held(manifest)}",
        )
    # The progress of the archiver's own backfill has no meaning for another flow.
    begin, until = (marker if marker is stored else replace(marker, backfill=b"") for marker in (begin, until))
    files = files_between(manifest, begin, until)
    rows, size = sum(entry.rows for entry in files), sum(entry.bytes for entry in files)
    return Range(manifest.shard, begin, until, start != Asked(), rows, size)


def _begin(manifest: Manifest, stored: Datamarker, start: Asked, markers: Markers) -> Datamarker:
    if start.earliest:
        return manifest.begin
    place = start.place
    if place is not None:
        if place >= manifest.begin.order:
            return _last(manifest, lambda marker: marker.order <= place, markers)
        if manifest.whole:
            return manifest.begin
    elif start.at_us is not None:
        if manifest.whole or _reaches_time(manifest, start.at_us):
            return _before_time(manifest, start.at_us, markers)
    elif stored.order >= manifest.begin.order or manifest.whole:
        return stored
    wanted = (
        f"--from {start.text}"
        if start.place
        else f"since {start.text}"
        if start.text
        else f"the flow's datamarker {stored.order}"
    )
    raise ReplayError(
        f"the archive does not reach back to {wanted}: {held(manifest)}",
        shard=manifest.shard,
        hint="no replay fills what it lacks: `--from earliest` is refused unless the flow has what lies before it; to "
        "go on without "
        "it, `wormholectl flows accept-loss`",
        code="archive-lacks-range",
    )


def _until(manifest: Manifest, stop: Asked, markers: Markers) -> Datamarker:
    """The first known datamarker at or after the requested place or time. For a time in the future: the end."""
    if stop.place is not None:
        place = stop.place
        if place > manifest.end.order:
            raise ReplayError(
                f"the archive does not reach up to --until {stop.text}: {held(manifest)}",
                shard=manifest.shard,
                hint="leave out --until for all that it holds, or wait for the archiver",
                code="archive-lacks-range",
            )
        return _first(manifest, lambda marker: marker.order >= place, markers)
    if stop.at_us is not None:
        at_us = stop.at_us
        return _first(manifest, lambda marker: marker.committed_at_us >= at_us, markers)
    return manifest.end


def _reaches_time(manifest: Manifest, at_us: int) -> bool:
    first = manifest.begin.committed_at_us or next((one.first_us for one in manifest.files if one.first_us), 0)
    return bool(first) and first <= at_us


def _before_time(manifest: Manifest, at_us: int, markers: Markers) -> Datamarker:
    """The last datamarker before the first update that was committed at ``at_us`` or later.

    Commit times go back when a clock is set back. Then the first file with a later time decides.
    """
    before = manifest.begin
    for entry in manifest.files:
        if entry.last_us and entry.last_us >= at_us:
            for marker in markers(entry):
                if marker.committed_at_us >= at_us:
                    break
                before = marker
            return before
        before = entry.end
    return before


def _last(manifest: Manifest, fits: Callable[[Datamarker], bool], markers: Markers) -> Datamarker:
    """The last datamarker for which ``fits`` is true. It is true for all datamarkers up to some place."""
    chosen = bisect_right(manifest.files, False, key=lambda entry: not fits(entry.end))
    best = manifest.begin if not chosen else manifest.files[chosen - 1].end
    if chosen < len(manifest.files):
        fitting = [marker for marker in markers(manifest.files[chosen]) if fits(marker)]
        best = fitting[-1] if fitting else best
    return best


def _first(manifest: Manifest, fits: Callable[[Datamarker], bool], markers: Markers) -> Datamarker:
    """The first datamarker for which ``fits`` is true, else the end."""
    if fits(manifest.begin):
        return manifest.begin
    for entry in manifest.files:
        if fits(entry.end):
            return next((marker for marker in markers(entry) if fits(marker)), entry.end)
    return manifest.end
