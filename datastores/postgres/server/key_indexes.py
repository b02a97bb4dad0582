"""Which index is a table's key: the one place for what the log, existing rows, models and `doctor` ask."""

from __future__ import annotations

from typing import Final

__all__ = ["AT_ONCE", "KEY_INDEX"]

AT_ONCE: Final = """\
NOT EXISTS (WITH RECURSIVE part (id) AS (
    SELECT i.indexrelid UNION ALL SELECT h.inhrelid FROM part JOIN pg_inherits h ON h.inhparent = part.id)
SELECT FROM part JOIN pg_index x ON x.indexrelid = part.id WHERE NOT (x.indimmediate AND x.indisvalid))"""
"""Whether two rows of the table never have equal keys, not even inside a statement: the condition on the index ``i``.

The rows of a DEFERRABLE constraint may be equal until the statement or the transaction ends, whether it is INITIALLY
IMMEDIATE or not, and the log has each of them: such columns identify no row. A partition may have a deferrable
constraint below an immediate one of its root, and a root an index that not every partition has (it is not valid)."""

KEY_INDEX: Final = f"""(
CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END AND {AT_ONCE})"""
"""Whether the index ``i`` is the key of the table ``c``: its REPLICA IDENTITY's, otherwise the primary key."""
