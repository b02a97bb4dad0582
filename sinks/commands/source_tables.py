"""Reads the present definitions of the tables that an application receives from their databases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wormhole.config import Config
from wormhole.config.application_filter import application_filter
from wormhole.config.datastores import installed
from wormhole.filters import Filter
from wormhole.formats import open_formats
from wormhole.model.errors import WormholeError
from wormhole.model.findings import Finding, Severity
from wormhole.model.table_definition import TableDefinition
from wormhole.ports.datastore import Login
from wormholectl.logs.sources import datastore_at

__all__ = ["SourceTables", "source_tables"]

_MOST: Final = 200
"""The most tables of one log. Each table costs a query, and so many are enough to find mistakes."""


@dataclass(frozen=True, slots=True)
class SourceTables:
    """The tables of one log, and why all or some of its tables are not known."""

    log: str
    tables: Sequence[TableDefinition] = ()
    problems: Sequence[Finding] = ()


def source_tables(config: Config, application: str) -> list[SourceTables]:
    """The tables of each log whose source is in ``config``. Only reads the databases."""
    found = config.applications.get(application)
    if found is None:
        return []
    dataset = config.datasets[found.dataset]
    wanted = application_filter(found, open_formats(dataset.value_format, dataset.values))
    tables: dict[str, SourceTables] = {}
    for copy, settings in dataset.copies.items():
        for name, log in settings.logs.items() if dataset.serves(copy, found.from_copy) else ():
            if log.inline is not None and name not in tables:
                tables[name] = _described(name, wanted, log.source, Login(log.password_file))
    return list(tables.values())


def _described(log: str, wanted: Filter, url: str, login: Login) -> SourceTables:
    names, left = list[str](), 0

    def chosen(table: str) -> bool:
        nonlocal left
        if wanted.wants_none_of(table):
            return False
        if len(names) >= _MOST:
            left += 1
            return False
        names.append(table)
        return True

    try:
        found = datastore_at(url)
        if found.capabilities.of_bytes:
            return SourceTables(log)
        with installed(found):
            tables = [wanted.projection.project_table(table) for table in found.describe(url, login, chosen)]
    except WormholeError as error:
        what = f"the tables of {log} were not compared: {error.message}"
        return SourceTables(log, (), [Finding("target_tables", Severity.WARN, what, next_step=error.hint or "")])
    if not left:
        return SourceTables(log, tables)
    what = f"{left} more tables of {log} were not compared"
    return SourceTables(log, tables, [Finding("target_tables", Severity.WARN, what)])
