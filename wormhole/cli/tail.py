"""``wormholectl tail``: a log's updates as they are committed, with nothing but the log.

A reader of its own in a thread hands segments over a queue of bounded length, so that Ctrl-C ends at once whatever the reader
waits for. All it keeps is in a temporary folder; a publisher of the same log does not notice it.
"""

from __future__ import annotations

import fcntl
import os
import queue
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from wormhole.cli.guard import lazily
from wormhole.cli.sources import extra_of, login_of, package_of, source_kind
from wormhole.errors import DecodeError, SourceUnavailable
from wormhole.filters import Filter
from wormhole.log_source import LogReader, LogSource
from wormhole.loss import LogGap
from wormhole.position import Datamarker, LogPosition
from wormhole.segment import Segment
from wormhole.sharding import Sharding
from wormhole.update import Batch, Update
from wormhole.wire.body import build_body, parse_body

__all__ = ["TailEvents", "TailOptions", "open_log", "tail", "tail_source", "updates_of", "whole_log"]

_SEGMENT_BYTES: Final = 256 << 10
_WAIT_S: Final = 0.25
_QUEUED: Final = 4
_MAX_UPDATE: Final = 64 << 20
_DISK_BUDGET: Final = 1 << 30
_LOG: Final = "log"
_FOLDER: Final = ".wormhole-tail-"
_SETTLED_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class TailOptions:
    """``start``: ``latest``, ``earliest``, a place or a logical position. ``limit``: end after so many updates; ``None``: do not.

    ``follow``: wait for more at the end of the log; else end where the log ended when the tail began, also when it grows faster
    than it is read.
    """

    filter: Filter
    start: str = "latest"
    limit: int | None = None
    follow: bool = True


@dataclass(frozen=True, slots=True)
class TailEvents:
    """Who is told: of every selected update, of missing log before a place, where the tail begins, and of updates that are in the log
    and cannot be decoded: they are left out.
    """

    update: Callable[[Update], None]
    gap: Callable[[LogGap, LogPosition], None]
    opened: Callable[[Datamarker], None] = lambda marker: None
    broken: Callable[[DecodeError], None] = lambda error: None


def tail(url: str, options: TailOptions, events: TailEvents, password_file: Path | None = None) -> int:
    """Tail the log at ``url`` with a reader and a folder of its own, as :func:`tail_source`."""
    options.filter.check(source_kind(url))
    with open_log(url, password_file) as source:
        return tail_source(source, options, events)


def tail_source(source: LogSource, options: TailOptions, events: TailEvents) -> int:
    """Tell updates until the limit, the end (without ``follow``) or an exception. Returns how many were told.

    Raises :class:`~wormhole.errors.WormholeError`; one that says that the log went away names the place to go on from.
    """
    told = 0
    marker = source.locate(options.start)
    last = None if options.follow else _end_of(source)
    reader = source.open(marker)
    with closing(_segments(reader, options.follow, last)) as segments:
        events.opened(marker)
        place = marker.order
        try:
            for segment in segments:
                if segment.gap is not None:
                    events.gap(segment.gap, segment.begin)
                for error in segment.broken.values():
                    events.broken(error)
                for update in updates_of(segment, options.filter):
                    events.update(update)
                    told += 1
                    if told == options.limit:
                        return told
                place = segment.end
        except SourceUnavailable as gone:
            raise SourceUnavailable(
                gone.message, hint=f"once it is back, --from {place} goes on where this ended"
            ) from gone
    return told


def updates_of(segment: Segment, wanted: Filter) -> Iterator[Update]:
    """The updates of a segment that a filter keeps."""
    for shard, run in segment.runs.items():
        found = wanted.select(run)
        body = build_body(run, segment.end.incarnation, found.kept, marks=found.marks, instead=found.key_only)
        if body is None:
            continue
        schemas = {schema.id: schema for schema in run.schemas}
        yield from Batch(parse_body(body.data), shard, 0, False, schemas.__getitem__).updates()


def whole_log(source: LogSource) -> Generator[Segment, None, None]:
    """Every segment from the earliest place to where the log ends now. Raises :class:`~wormhole.errors.WormholeError`."""
    last = _end_of(source)
    reader = source.open(source.earliest())
    with closing(_segments(reader, False, last)) as segments:
        yield from segments


def _end_of(source: LogSource) -> LogPosition | None:
    try:
        return source.latest().order
    except DecodeError:
        return None  # the reader tells it too, after what stands before the damage


def _segments(reader: LogReader, follow: bool, last: LogPosition | None) -> Generator[Segment, None, None]:
    """Segments as a thread reads them, with ``follow`` for ever, else until there are none or ``last`` was reached; its exception is
    raised here. Closes the reader at its end.
    """
    arrived: queue.Queue[Segment | BaseException | None] = queue.Queue(_QUEUED)
    stopping = threading.Event()

    def read() -> None:
        try:
            while not stopping.is_set():
                segment = reader.read(_SEGMENT_BYTES, _WAIT_S)
                if segment is not None:
                    _put(arrived, segment, stopping)
                if not follow and (segment is None or (last is not None and segment.end >= last)):
                    _put(arrived, None, stopping)
                    return
        except BaseException as error:  # noqa: BLE001  # raised again by the thread that asks
            _put(arrived, error, stopping)

    thread = threading.Thread(target=read, name="tail-reader", daemon=True)
    thread.start()
    try:
        while (item := arrived.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopping.set()
        reader.close()
        thread.join(timeout=5)


def _put(
    arrived: queue.Queue[Segment | BaseException | None],
    item: Segment | BaseException | None,
    stopping: threading.Event,
) -> None:
    while not stopping.is_set():
        try:
            arrived.put(item, timeout=_WAIT_S)
        except queue.Full:
            continue
        return


@contextmanager
def open_log(url: str, password_file: Path | None = None) -> Iterator[LogSource]:
    """The log at ``url``, started, with a folder of its own that goes with it. Raises :class:`~wormhole.errors.WormholeError`."""
    kind = source_kind(url)
    opening = lazily("publisher.source", extra_of(kind))
    lazily(f"publisher.source.{package_of(kind)}.source", extra_of(kind))  # has the imports that may be missing
    login = login_of(url, password_file)
    database = Path(unquote(urlsplit(url).path)) if kind == "rocksdb" else None
    with _terminated_as_interrupted(), _state_folder(database) as folder:
        source: LogSource = opening.open_source(
            url,
            log=_LOG,
            state_dir=folder,
            sharding=Sharding("log"),
            max_update_bytes=_MAX_UPDATE,
            disk_budget=_DISK_BUDGET,
            **login,
        )
        source.start()
        try:
            yield source
        finally:
            source.stop()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the tail like Ctrl-C: with its folder cleared away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _state_folder(database: Path | None) -> Iterator[Path]:
    """A temporary folder: beside a database of files where we may, since links to its log files cost nothing there.

    What a killed tail left there would keep deleted log files on disk, so it is cleared away first. The lock, which dies with
    its process, tells such a folder from one in use.
    """
    beside = Path(tempfile.gettempdir())
    if database is not None and os.access(database.absolute().parent, os.W_OK | os.X_OK):
        beside = database.absolute().parent
        _clear_abandoned(beside)
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=beside))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _clear_abandoned(beside: Path) -> None:
    for folder in beside.glob(f"{_FOLDER}*"):
        with suppress(OSError):  # in use, another user's, or gone meanwhile
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                # One that was just made may not be locked yet.
                if time.time() - os.fstat(lock).st_mtime > _SETTLED_S:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
