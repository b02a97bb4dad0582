"""Compares an application with the tables of its database. It finds filters on missing columns or tables, entries of
``columns`` and ``mask`` that name no column, and masks on columns of a key.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from wormhole.config import Config
from wormhole.config.application_filter import application_filter
from wormhole.config.datastores import installed
from wormhole.filters import Filter, Projection
from wormhole.formats import open_formats
from wormhole.model.errors import ConfigError, FilterError, WormholeError
from wormhole.model.table_definition import TableDefinition
from wormhole.ports.datastore import Login
from wormholectl.logs.sources import datastore_at
from wormholectl.show.printer import counted

__all__ = ["in_config", "no_table", "of_log", "unmatched", "warnings"]

_MOST_TABLES: Final = 200
"""The most tables to compare. Each costs a query, and these are enough to show a mistake."""
_SHOWN: Final = 5


def of_log(wanted: Filter, url: str, login: Login) -> list[str]:
    """Warnings about the filter after comparing it with the present tables of the log at ``url``.

    Raises :class:`~wormhole.model.errors.FilterError` for a mask on a column of a key, and another
    :class:`~wormhole.model.errors.WormholeError` if the tables cannot be read.
    """
    return [text for _, text in _of_log(wanted, url, login)]


def no_table(wanted: Filter, url: str, login: Login) -> list[str]:
    """A warning if the filter chooses tables and the log at ``url`` has none of these tables now; otherwise empty.

    Raises :class:`~wormhole.model.errors.WormholeError` if the tables cannot be read.
    """
    found = datastore_at(url)
    if found.capabilities.of_bytes or not wanted.wants_none_of(""):
        return []
    chosen = 0

    def count(table: str) -> bool:
        nonlocal chosen
        chosen += not wanted.wants_none_of(table)
        return False  # the columns of the table are not needed

    found.describe(url, login, count)
    step = "check the names; a table that is created later is shown"
    return [] if chosen else [f"no table that this account may see fits {wanted.text}. Next: {step}"]


def _of_log(wanted: Filter, url: str, login: Login) -> list[tuple[str, str]]:
    """The warnings of :func:`of_log`, each with the setting that it concerns."""
    found = datastore_at(url)
    if found.capabilities.of_bytes or not (wanted.columns or wanted.projection):
        return []
    names: list[str] = []

    def chosen(table: str) -> bool:
        if len(names) >= _MOST_TABLES or wanted.wants_none_of(table):
            return False
        names.append(table)
        return True

    with installed(found):
        tables = found.describe(url, login, chosen)
    for table in tables:
        if problem := wanted.projection.problem(table.name, table.key):
            raise FilterError(problem.message, hint=problem.hint, code=problem.code)
    return [*(("where", text) for text in warnings(wanted, tables)), *unmatched(wanted.projection, tables)]


def in_config(config: Config) -> list[str]:
    """Warnings about the filters of all applications, each with its configuration key.

    A log whose tables cannot be read has a warning with the reason. A log that another host defines has no warning.
    Raises :class:`~wormhole.model.errors.ConfigError` for masks on columns of a key.
    """
    lines, problems = [], []
    for name, application in config.applications.items():
        dataset = config.datasets[application.dataset]
        formats = open_formats(dataset.value_format, dataset.values)
        wanted = application_filter(application, formats)
        for copy, settings in dataset.copies.items():
            for log in settings.logs.values() if dataset.serves(copy, application.from_copy) else ():
                if log.inline is None:
                    continue
                try:
                    found = _of_log(wanted, log.source, Login(log.password_file))
                except FilterError as error:
                    found = []
                    problems.append(f"applications.{name}.{error}")
                except WormholeError as error:
                    setting = "where" if wanted.columns else "columns" if application.columns else "mask"
                    found = [(setting, f"its columns were not compared with the tables: {error}")]
                lines += [f"applications.{name}.{setting}: {text}" for setting, text in found]
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    return list(dict.fromkeys(lines))


def unmatched(projection: Projection, tables: Sequence[TableDefinition]) -> Iterator[tuple[str, str]]:
    """Warnings, each with its setting, about entries of ``columns`` and ``mask`` that name no column. Pure."""
    known = {column.name for table in tables for column in table.columns}
    for setting, entry in projection.unmatched(tables):
        close = difflib.get_close_matches(entry.rpartition(".")[2], known, 1)
        step = f"did you mean {close[0]}?" if close else f"remove it from `{setting}`, or correct it"
        effect = ", so it hides nothing" if setting == "mask" else ""
        yield setting, f"{entry} names no column of {counted(len(tables), 'table')}{effect}. Next: {step}"


def warnings(wanted: Filter, tables: Sequence[TableDefinition]) -> list[str]:
    """Sentences that name the tables without columns that the filter tests, and the effect on their updates. Pure."""
    known = {column.name for table in tables for column in table.columns}
    lacking: dict[tuple[tuple[str, ...], bool], list[str]] = defaultdict(list)
    for table in tables:
        missing, everything = wanted.lacking(table.name, {column.name for column in table.columns})
        if missing:
            lacking[tuple(sorted(missing)), everything].append(table.name)
    return list(_sentences(lacking, known, len(tables)))


def _sentences(lacking: dict[tuple[tuple[str, ...], bool], list[str]], known: set[str], tables: int) -> Iterator[str]:
    for (missing, everything), names in lacking.items():
        more = len(names) - _SHOWN
        some = ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        verb, them = ("have", "their") if len(names) > 1 else ("has", "its")
        fate = f"all {them} updates are delivered" if everything else "the rest of the filter decides"
        like = [f"{close[0]} for {one}" for one in missing if (close := difflib.get_close_matches(one, known, 1))]
        step = "choose the tables that have it, with `tables` or `table ==`"
        if len(names) == tables and like:
            step = f"did you mean {', '.join(like)}?"
        yield (
            f"{some} {verb} no column {', '.join(missing)}: that test is unknown there, which passes, so {fate}. "
            f"Next: {step}"
        )
