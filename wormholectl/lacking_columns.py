"""Warnings about filters that test a column which some of their tables lack."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from wormhole.config import Config
from wormhole.config.datastores import installed
from wormhole.filters import Filter
from wormhole.formats import open_formats
from wormhole.model.errors import WormholeError
from wormhole.model.table_definition import TableDefinition
from wormhole.ports.datastore import Login
from wormholectl.sources import datastore_at

__all__ = ["in_config", "of_log", "warnings"]

_MOST_TABLES: Final = 200
"""Each is asked for, so with more of them these are enough to see what is wrong."""
_SHOWN: Final = 5


def of_log(wanted: Filter, url: str, login: Login) -> list[str]:
    """Warnings about the filter from the tables of the log at ``url``, as they are now.

    Raises :class:`~wormhole.model.errors.WormholeError` where they cannot be read.
    """
    found = datastore_at(url)
    if found.capabilities.of_bytes or not wanted.columns:
        return []
    names: list[str] = []

    def chosen(table: str) -> bool:
        if len(names) >= _MOST_TABLES or wanted.wants_none_of(table):
            return False
        names.append(table)
        return True

    with installed(found):
        return warnings(wanted, found.describe(url, login, chosen))


def in_config(config: Config) -> list[str]:
    """Warnings about every application's filter, each with its key.

    A log whose tables cannot be read has a warning that says so; one that another host defines has none.
    """
    lines = []
    for name, application in config.applications.items():
        dataset = config.datasets[application.dataset]
        formats = open_formats(dataset.value_format, dataset.values)
        wanted = Filter.parse(application.where or None, application.tables, formats)
        for copy, settings in dataset.copies.items():
            for log in settings.logs.values() if application.from_copy in ("", copy) else ():
                if log.inline is None:
                    continue
                try:
                    found = of_log(wanted, log.source, Login(log.password_file))
                except WormholeError as error:
                    found = [f"its columns were not compared with the tables: {error}"]
                lines += [f"applications.{name}.where: {warning}" for warning in found]
    return list(dict.fromkeys(lines))


def warnings(wanted: Filter, tables: Sequence[TableDefinition]) -> list[str]:
    """Which of the tables lack which columns, and what becomes of their updates. Pure."""
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
