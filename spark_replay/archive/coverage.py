"""The ranges of a shard that an archive holds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from spark_replay.archive.manifest import FileEntry, KnownLoss, Manifest
from wormhole.model.position import Datamarker, LogPosition

__all__ = ["Coverage", "Span", "chain_problems", "coverage", "missing", "time_of"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the log without a hole: every update between ``begin`` and ``end``.

    ``first_us`` and ``last_us``: least and greatest commit time in it, microseconds since 1970; 0 if none is known.
    """

    begin: Datamarker
    end: Datamarker
    first_us: int
    last_us: int
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """One shard: its spans, ascending. Between two spans is an accepted loss.

    ``whole``: as in the manifest.
    """

    shard: str
    spans: tuple[Span, ...]
    losses: tuple[KnownLoss, ...]
    whole: bool

    @property
    def files(self) -> int:
        """The number of valid data files."""
        return sum(span.files for span in self.spans)

    @property
    def rows(self) -> int:
        """The number of updates."""
        return sum(span.rows for span in self.spans)

    @property
    def bytes(self) -> int:
        """The bytes of the data files."""
        return sum(span.bytes for span in self.spans)


def coverage(manifest: Manifest) -> Coverage:
    """The coverage by the manifest."""
    spans = tuple(_spans(manifest))
    return Coverage(manifest.shard, spans, manifest.losses, manifest.whole)


def _spans(manifest: Manifest) -> Iterator[Span]:
    resumes = {loss.resume.order: loss.resume for loss in manifest.losses}
    begin, end = manifest.begin, manifest.begin
    held: list[FileEntry] = []
    for entry in manifest.files:
        if entry.begin.order != end.order:
            yield _span(begin, end, held)
            begin, held = resumes.get(entry.begin.order, entry.begin), []
        held.append(entry)
        end = entry.end
    yield _span(begin, end, held)
    if manifest.end.order != end.order:  # no update came after the last loss
        yield _span(manifest.end, manifest.end, [])


def _span(begin: Datamarker, end: Datamarker, files: list[FileEntry]) -> Span:
    return Span(
        begin=begin,
        end=end,
        first_us=min((entry.first_us for entry in files if entry.first_us), default=0),
        last_us=max((entry.last_us for entry in files), default=0),
        files=len(files),
        rows=sum(entry.rows for entry in files),
        bytes=sum(entry.bytes for entry in files),
    )


def missing(
    manifest: Manifest | None, begin: LogPosition, end: LogPosition
) -> tuple[tuple[LogPosition, LogPosition], ...]:
    """The parts of the log between two places that the archive does not hold, ascending.

    ``manifest``: ``None`` if nothing was archived.
    """
    if begin >= end:
        return ()
    found: list[tuple[LogPosition, LogPosition]] = []
    at = begin
    for span in coverage(manifest).spans if manifest is not None else ():
        if span.begin.order > at:
            found.append((at, min(span.begin.order, end)))
        at = max(at, span.end.order)
        if at >= end:
            return tuple(found)
    return (*found, (at, end))


def time_of(entry: FileEntry) -> int:
    """Commit time of the file's newest update in microseconds since 1970; 0 when the log has no commit times."""
    return max(entry.last_us, entry.end.committed_at_us)


def chain_problems(manifest: Manifest) -> list[str]:
    """The problems of the manifest itself, one sentence each.

    Every file has to begin where the previous one ends, or where the log resumes after a known loss.
    """
    problems: list[str] = []
    resumes = {loss.resume.order for loss in manifest.losses}
    at, before = manifest.begin.order, "the archive"
    for entry in manifest.files:
        problems += _gap(at, before, entry.begin.order, entry.name, resumes)
        if entry.end.order < entry.begin.order:
            problems.append(f"{entry.name} ends at {entry.end.order}, before it begins at {entry.begin.order}")
        at, before = max(at, entry.end.order), entry.name
    problems += _gap(at, before, manifest.end.order, "the end", resumes)
    names = Counter(entry.name for entry in manifest.files)
    problems += [f"{name} is named twice" for name, count in sorted(names.items()) if count > 1]
    return problems


def _gap(at: LogPosition, before: str, begin: LogPosition, name: str, resumes: set[LogPosition]) -> list[str]:
    if begin < at:
        return [f"overlap: {name} begins at {begin}, {before} goes up to {at}"]
    if begin > at and begin not in resumes:
        return [f"hole between {at} and {begin}: nothing lies between {before} and {name}"]
    return []
