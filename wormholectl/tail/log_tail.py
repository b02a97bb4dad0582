"""Reads a log's updates for ``wormholectl tail``, as they are committed. It needs only the log.

A thread reads the log and puts segments into a bounded queue, so that Ctrl-C works while the reader waits. All state is
in a temporary folder. A publisher of the same log is not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from wormhole.filters import Filter
from wormhole.model.errors import DecodeError, Diverged, PositionPurged, SourceSilent, SourceUnavailable, WormholeError
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Schema
from wormhole.model.segment import Segment
from wormhole.ports.datastore import Datastore
from wormhole.ports.log_source import LogReader, LogSource
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.endings import Endings
from wormhole.wire.update import Batch, Update
from wormholectl.filters import lacking_columns
from wormholectl.logs.opened import open_log
from wormholectl.logs.segment_stream import SILENCE_S, End, read_segments
from wormholectl.logs.sources import datastore_at, login_of

__all__ = ["Selected", "ShownPlaces", "TailEvents", "TailOptions", "tail", "tail_source"]


@dataclass(frozen=True, slots=True)
class TailOptions:
    """``start``: ``latest``, ``earliest``, a place or a logical position. ``limit``: end after this many updates;
    ``None``: no limit.

    ``follow``: wait for more updates at the end of the log. Without it, the tail ends at the place where the log ended
    when the tail began.
    """

    filter: Filter
    start: str = "latest"
    limit: int | None = None
    follow: bool = True


@dataclass(frozen=True, slots=True)
class TailEvents:
    """The callbacks: for each selected update, for missing log before a place, for the place where the tail begins, and
    for undecodable updates, which are omitted. ``waiting``: called with a sentence if nothing came for 10 s before the
    end, or if a reader broke and is opened again. ``warning``: called with a sentence about the filter.
    """

    update: Callable[[Update], None]
    gap: Callable[[LogGap, LogPosition], None]
    opened: Callable[[Datamarker], None] = lambda marker: None
    broken: Callable[[DecodeError], None] = lambda error: None
    waiting: Callable[[str], None] = lambda sentence: None
    warning: Callable[[str], None] = lambda sentence: None


@dataclass(slots=True)
class ShownPlaces:
    """Formats places of a log for people. ``base``: the ``datastore``'s name for the log's files, once it is open."""

    datastore: Datastore | None = None
    base: str = ""

    def native(self, place: LogPosition) -> str:
        """The place in the form of the datastore's own tools; empty if they have no other form."""
        return "" if self.datastore is None else self.datastore.native_place(place, self.base)

    def shown(self, place: LogPosition) -> str:
        """The place in Wormhole's form and in the datastore's form."""
        native = self.native(place)
        return f"{place} ({native})" if native else str(place)


def tail(
    url: str,
    options: TailOptions,
    events: TailEvents,
    password_file: Path | None = None,
    places: ShownPlaces | None = None,
) -> int:
    """Tail the log at ``url``, like :func:`tail_source`, with a new reader and a temporary folder."""
    found = datastore_at(url)
    options.filter.check(found.capabilities)
    places = places or ShownPlaces()
    login = login_of(url, password_file)
    with suppress(WormholeError):  # the tail itself reports a problem of the account or the server
        for examine in (lacking_columns.no_table, lacking_columns.of_log):
            for sentence in examine(options.filter, url, login):
                events.warning(sentence)
    with open_log(url, login) as source:
        places.datastore, places.base = found, source.status().base
        return tail_source(source, options, events, places)


def tail_source(
    source: LogSource,
    options: TailOptions,
    events: TailEvents,
    places: ShownPlaces | None = None,
) -> int:
    """Show updates until the limit, the end (without ``follow``) or an exception. Returns the number of shown updates.

    A reader that breaks is opened again at the last datamarker. Raises :class:`~wormhole.model.errors.WormholeError`.
    An error after the begin names the place at which to continue.
    """

    places = places or ShownPlaces()

    def silent(place: LogPosition, to: LogPosition | None) -> None:
        until = "" if to is None else f", and the log goes on to {places.shown(to)}"
        problems = map(str, source.status().problems)
        events.waiting("; ".join((f"nothing came for {SILENCE_S:g} s at {places.shown(place)}{until}", *problems)))

    marker = source.locate(options.start)
    end = None if options.follow else End(source)
    reader = source.open(marker)
    events.opened(marker)
    shown = 0
    ahead = 0  # updates after the marker that an earlier reader has shown, of an unfinished transaction
    while True:
        behind = 0  # updates after the marker that this reader has read
        arrived = False
        with closing(read_segments(reader, marker, end, silent)) as segments:
            try:
                selected = Selected(options.filter)
                for segment in segments:
                    arrived = True
                    if segment.gap is not None and not ahead:
                        events.gap(segment.gap, segment.begin)
                    for error in segment.broken.values():
                        events.broken(error)
                    for update in selected.of(segment):
                        behind += 1
                        if behind <= ahead:
                            continue
                        events.update(update)
                        shown += 1
                        if shown == options.limit:
                            return shown
                    if segment.marker is not None:
                        marker, behind, ahead = segment.marker, 0, 0
                    ahead = max(ahead, behind)
                return shown
            except SourceUnavailable as broken:
                if not arrived and not isinstance(broken, SourceSilent):
                    raise _unfinished(broken, marker, places) from broken
                events.waiting(f"{broken.message}; it is opened again at {places.shown(marker.order)}")
            except (Diverged, PositionPurged) as lost:
                raise _unfinished(lost, marker, places) from lost
        reader = _opened_again(source, marker, events, places)


def _opened_again(source: LogSource, marker: Datamarker, events: TailEvents, places: ShownPlaces) -> LogReader:
    """Wait until the source answers, and open a reader at ``marker``.

    Raises :class:`~wormhole.model.errors.WormholeError` if the source cannot be reached.
    """
    while True:
        try:
            return source.open(marker)
        except SourceSilent as silent:  # the call has waited for the answer
            events.waiting(silent.message)
        except (SourceUnavailable, Diverged, PositionPurged) as error:
            raise _unfinished(error, marker, places) from error


def _unfinished(error: WormholeError, marker: Datamarker, places: ShownPlaces) -> WormholeError:
    """The error, completed with the place at which to continue."""
    place = marker.order
    if isinstance(error, SourceUnavailable):
        return SourceUnavailable(error.message, hint=f"once it is back, --from {place} goes on where this ended")
    error.hint = f"everything up to {places.shown(place)} was shown; --from earliest shows what the log holds now"
    return error


class Selected:
    """Applies a filter to the segments of one reader, like a subscriber's flow. The last update of a transaction is
    marked as the last, even if the transaction comes in pieces and the filter drops its end.
    """

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._endings: dict[str, Endings] = {}
        self._schemas: dict[int, Schema] = {}

    def of(self, segment: Segment) -> Iterator[Update]:
        """The selected updates of the next segment."""
        for shard, run in segment.runs.items():
            found = self._wanted.select(run)
            body = build_body(run, segment.end.incarnation, found.kept, marks=found.marks, instead=found.key_only)
            if body is None:
                continue
            self._schemas.update((schema.id, schema) for schema in run.schemas)
            endings = self._endings.setdefault(shard, Endings())
            yield from self._updates(shard, endings.pass_on(body.data, unfinished=body.unfinished))
        if segment.marker is not None:
            for shard, endings in self._endings.items():
                if (last := endings.release()) is not None:
                    yield from self._updates(shard, last)

    def _updates(self, shard: str, body: bytes) -> Iterable[Update]:
        return Batch(parse_body(body), shard, 0, False, self._schemas.__getitem__).updates()
