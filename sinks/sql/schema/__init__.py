"""Tables of a target: what a sink wants, what is there, and how the one becomes the other.

::

    dialect     names of the dialects, and how names are quoted
    table       the table that a sink wants for a schema of the source
    fitting     pure: which existing columns hold which arriving values, and what they lose
    planning    pure: the statements, or why the table cannot be used
    catalogue   reads what is there
    values      pure: values of updates as the driver takes them, and back
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
