"""The SQL condition for the index that is a table's key, shared by the log, existing rows, models and `doctor`."""

from __future__ import annotations

from typing import Final

__all__ = ["AT_ONCE", "KEY_INDEX"]

AT_ONCE: Final = """\
NOT EXISTS (WITH RECURSIVE part (id) AS (
    SELECT i.indexrelid UNION ALL SELECT h.inhrelid FROM part JOIN pg_inherits h ON h.inhparent = part.id)
SELECT FROM part JOIN pg_index x ON x.indexrelid = part.id WHERE NOT (x.indimmediate AND x.indisvalid))"""
"""The condition on the index ``i`` that two rows of the table never have equal keys, not even within a statement.

With a DEFERRABLE constraint, INITIALLY IMMEDIATE or not, keys may be equal until the statement or the transaction ends,
and the log has every such row. So these keys identify no row. A partition may have a deferrable constraint although the
root's constraint is immediate. An index of the root that a partition lacks is not valid."""

KEY_INDEX: Final = f"""(
CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END AND {AT_ONCE})"""
"""The condition that ``i`` is the key of the table ``c``: the index of its REPLICA IDENTITY, or its primary key."""
