"""Definitions of target tables: the wanted table, the existing table, and the DDL that turns one into the other.

::

    dialect     names of the dialects, and how names are quoted
    table       the table that a sink wants for a schema of the source
    fitting     pure: which existing columns can hold which arriving values, and what is lost
    planning    pure: the DDL statements, or why the table cannot be used
    catalogue   reads the existing tables
    values      pure: converts values of updates for the driver, and back
"""

from sinks.sql.schema.catalogue import Run, actual
from sinks.sql.schema.dialect import Dialect, TableName, quoted
from sinks.sql.schema.planning import Plan, plan
from sinks.sql.schema.table import Kind, Options, TargetColumn, TargetTable, wanted
from sinks.sql.schema.values import reader, selected, unchanged, writer

__all__ = [
    "Dialect",
    "Kind",
    "Options",
    "Plan",
    "Run",
    "TableName",
    "TargetColumn",
    "TargetTable",
    "actual",
    "plan",
    "quoted",
    "reader",
    "selected",
    "unchanged",
    "wanted",
    "writer",
]
