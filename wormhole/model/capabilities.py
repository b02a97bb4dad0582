"""The content of a datastore's updates, by which filters and settings of its applications are checked."""

from __future__ import annotations

from dataclasses import dataclass

from wormhole.model.values import Op

__all__ = ["Capabilities"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The content of updates. The defaults are those of a datastore with typed columns and full row images.

    ``title``: the name of the datastore in messages. ``of_bytes``: a key is one piece of bytes, and a value is bytes
    until a format is declared for it. ``databases``: tables are named ``database.table``; ``table_name`` and
    ``example_database``: the words for that in messages. ``more_tables``: tables of the log that belong to no database.
    ``row_before``: updates hold the row before the change. ``ops``: the operations that the log distinguishes.
    """

    title: str = "this source"
    of_bytes: bool = False
    databases: bool = False
    table_name: str = "database.table"
    example_database: str = "shop"
    more_tables: tuple[str, ...] = ()
    row_before: bool = True
    ops: tuple[Op, ...] = tuple(Op)
