"""What the updates of a datastore hold: which filters can be decided for it, and which settings of a dataset fit it."""

from __future__ import annotations

from dataclasses import dataclass

from wormhole.model.values import Op

__all__ = ["Capabilities"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The default is what a datastore with typed columns and full row images has.

    ``title``: the datastore as messages name it. ``of_bytes``: a key is one piece of bytes, and a value is bytes until
    a format is declared for it. ``databases``: tables are named ``database.table``; ``table_name`` and
    ``example_database``: how messages say that. ``more_tables``: those of the log that no database has. ``row_before``:
    updates hold the row before the change. ``ops``: the operations that the log distinguishes.
    """

    title: str = "this source"
    of_bytes: bool = False
    databases: bool = False
    table_name: str = "database.table"
    example_database: str = "shop"
    more_tables: tuple[str, ...] = ()
    row_before: bool = True
    ops: tuple[Op, ...] = tuple(Op)
