"""Measures the effect of a filter on the last updates of a log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wormhole.config import find_application, load
from wormhole.config.application_filter import application_filter
from wormhole.config.datastores import datastore
from wormhole.filters import Filter, MaskKey, RunView
from wormhole.formats import FormatSpec, ValueFormats, open_formats
from wormhole.model.errors import UsageError
from wormhole.model.position import LogPosition
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogSource
from wormholectl.logs.segment_stream import SILENCE_S, whole_log
from wormholectl.logs.sources import datastore_at, split_database, tables_within
from wormholectl.show.printer import print_text

__all__ = ["Chosen", "Effect", "TableEffect", "effect", "formats_of", "from_config", "from_options"]

_MOST_BYTES: Final = 64 << 20
"""The most bytes of encoded updates that are kept while the log is read. With large updates, fewer than requested are
examined."""
_ANY_KEY: Final = MaskKey(bytes(32))  # any key will do, because only the size of hashes matters


@dataclass(frozen=True, slots=True)
class Chosen:
    """A filter, the URL of the log to test it on (empty: no log), and the file with the log's password.

    ``tables``: the application's table patterns, which the filter contains.
    """

    filter: Filter
    source: str
    password_file: Path | None = None
    tables: Sequence[str] = ()


@dataclass(slots=True)
class TableEffect:
    """The effect of a filter on the updates of one table.

    ``kept`` includes updates that are delivered with their key only. Sizes are in bytes.
    """

    table: str
    updates: int = 0
    kept: int = 0
    key_only: int = 0
    bytes: int = 0
    sent_bytes: int = 0
    bad_values: int = 0


@dataclass(slots=True)
class Effect:
    """The effect of a filter on the updates between two places of a log."""

    updates: int
    begin: LogPosition | None
    end: LogPosition | None
    tables: list[TableEffect]


def formats_of(options: Iterable[str]) -> ValueFormats:
    """The decoders of ``[TABLE=]FORMAT`` options. Raises :class:`~wormhole.model.errors.UsageError`."""
    default: FormatSpec | None = None
    tables: dict[str, FormatSpec] = {}
    for option in options:
        table, equals, text = option.rpartition("=")
        try:
            spec = FormatSpec.from_text(text)
        except ValueError as error:
            raise UsageError(f"--value-format {option}: {error}") from error
        if equals:
            tables[table] = spec
        else:
            default = spec
    return open_formats(default, tables)


def from_options(
    where: str, tables: Sequence[str], source: str, formats: Iterable[str], password_file: Path | None = None
) -> Chosen:
    """The filter and log that the options name. Raises :class:`~wormhole.model.errors.UsageError`."""
    source, database = split_database(source)
    wanted = Filter.parse(where, tables_within(database, tables), formats_of(formats))
    if source:
        wanted.check(datastore_at(source).capabilities)
    return Chosen(wanted, source, password_file)


def from_config(path: Path, application: str, log: str | None) -> Chosen:
    """An application's filter, and a log of its dataset. Raises :class:`~wormhole.model.errors.UsageError`."""
    config = load(path)
    found = find_application(config.applications, application)
    dataset = config.datasets[found.dataset]
    logs = {
        f"{dataset.name}/{copy}/{name}": one
        for copy, settings in dataset.copies.items()
        for name, one in settings.logs.items()
        if dataset.serves(copy, found.from_copy)
    }
    if log is None and len(logs) > 1:
        raise UsageError(f"{application} receives several logs", hint=f"choose one with --log: {', '.join(logs)}")
    if log is not None and log not in logs:
        raise UsageError(f"{application} receives no log {log}", hint=f"choose one of: {', '.join(logs)}")
    chosen = logs[log] if log is not None else next(iter(logs.values()))
    wanted = application_filter(found, open_formats(dataset.value_format, dataset.values), _ANY_KEY)
    wanted.check(datastore(chosen.kind).capabilities)
    return Chosen(wanted, chosen.source, chosen.password_file, found.tables)


def _waiting(place: LogPosition, end: LogPosition | None) -> None:
    until = "" if end is None else f", and the log goes on to {end}"
    print_text(f"waiting for the log: nothing came for {SILENCE_S:g} s at {place}{until}", error=True)


def effect(wanted: Filter, source: LogSource, last: int) -> Effect:
    """The effect of the filter on the ``last`` updates of a log, or on all its updates if it holds fewer.

    Raises :class:`~wormhole.model.errors.WormholeError` if the log cannot be read to its end.
    """
    kept: deque[Segment] = deque()
    updates = size_now = 0
    with closing(whole_log(source, _waiting)) as segments:
        for segment in segments:
            if not segment.updates:
                continue
            kept.append(segment)
            updates += segment.updates
            size_now += segment.size
            while len(kept) > 1 and (updates - kept[0].updates >= last or size_now > _MOST_BYTES):
                oldest = kept.popleft()
                updates -= oldest.updates
                size_now -= oldest.size
    tables: dict[str, TableEffect] = {}
    skip = max(0, updates - last)
    for number, segment in enumerate(kept):
        _add(wanted, segment, skip if number == 0 else 0, tables)
    ends = (kept[0].begin, kept[-1].end) if kept else (None, None)
    return Effect(updates - skip, ends[0], ends[1], sorted(tables.values(), key=lambda one: one.table))


def _add(wanted: Filter, segment: Segment, skip: int, tables: dict[str, TableEffect]) -> None:
    for run in segment.runs.values():  # only one run: the log is read as one shard
        found = wanted.select(RunView(run))
        sent = wanted.projection.project(run, found.kept).ends
        kept = frozenset(range(run.updates) if found.kept is None else found.kept)
        bad = frozenset(ordinal for ordinal, _ in found.bad)
        for i in range(skip, run.updates):
            one = len(run.schema_index) == 1
            schema = run.schemas[run.schema_index[0 if one else i] if run.schema_index else 0]
            table = tables.setdefault(schema.table, TableEffect(schema.table))
            length = run.ends[i] - (run.ends[i - 1] if i else 0)
            table.updates += 1
            table.bytes += length
            if i in kept:
                table.kept += 1
                sent_length = sent[i] - (sent[i - 1] if i else 0)
                table.sent_bytes += len(found.key_only[i]) if i in found.key_only else sent_length
                table.key_only += i in found.key_only
                table.bad_values += i in bad
