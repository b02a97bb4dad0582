"""Finds tables without the columns that a backfill's filter tests. On their rows such a test is unknown. A row passes
if the whole filter is unknown."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wormhole.filters import Filter
from wormhole.model.visible import few
from wormhole.ports.table_source import ScannedTable

__all__ = ["MissingColumns", "missing_columns"]


@dataclass(frozen=True, slots=True)
class MissingColumns:
    """``everywhere``: columns that are missing in every table for which they are tested, each with the most similar
    column name of a table, or an empty text. ``compared``: the tables whose columns are known. ``notes``: how rows of
    tables that lack some columns are treated.
    """

    everywhere: Mapping[str, str]
    compared: Sequence[str]
    notes: Sequence[str]

    @property
    def text(self) -> str:
        """The error message if no table has a column of ``everywhere``."""
        columns = f"column{'s' if len(self.everywhere) > 1 else ''} {', '.join(self.everywhere)}"
        if len(self.compared) == 1:
            return f"the table {self.compared[0]} has no {columns}, so that the filter cannot be decided"
        return f"none of {len(self.compared)} tables has the {columns}, so that the filter cannot be decided"

    @property
    def hint(self) -> str:
        """The next step for that problem."""
        like = [f"{close} for {name}" for name, close in self.everywhere.items() if close]
        return f"did you mean {', '.join(like)}?" if like else "correct the name in --where, or choose other tables"


def missing_columns(where: Filter, tables: Sequence[ScannedTable]) -> MissingColumns:
    """Compare the filter with the tables whose columns are known. Pure."""
    known = {column for table in tables for column in table.columns}
    compared = [table for table in tables if table.columns and not table.refused]
    lacking: dict[tuple[tuple[str, ...], bool], list[str]] = defaultdict(list)
    absent: set[str] = set()
    tested: set[str] = set()
    for table in compared:
        missing, everything = where.lacking(table.name, table.columns)
        absent |= missing
        tested |= where.lacking(table.name, ())[0] - missing
        if missing:
            lacking[tuple(sorted(missing)), everything].append(table.name)
    everywhere = {name: next(iter(difflib.get_close_matches(name, known, 1)), "") for name in sorted(absent - tested)}
    notes = [_note(missing, names, everything) for (missing, everything), names in lacking.items()]
    return MissingColumns(everywhere, [table.name for table in compared], notes)


def _note(missing: Sequence[str], names: Sequence[str], everything: bool) -> str:
    verb, them = ("have", "their") if len(names) > 1 else ("has", "its")
    fate = f"which passes, so all {them} rows are sent" if everything else "the rest of the filter decides"
    return f"{few(names)} {verb} no column {', '.join(missing)}: that test is unknown there, {fate}"
