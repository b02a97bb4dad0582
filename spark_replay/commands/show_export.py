"""Shows tables that ``export`` continued, as rows and as an object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wormholectl.show.printer import print_json, print_table

if TYPE_CHECKING:
    from spark_replay.export.exporter import Result

__all__ = ["show_exported"]


def _done(one: Result) -> str:
    if one.did == "left_out":
        return f"left out: {one.problem.message if one.problem is not None else ''}"
    return one.did if one.problem is None else "failed"


def show_exported(found: Sequence[Result], dataset: str, dry: bool, as_json: bool) -> None:
    """Show the result for each table. For a ``dry`` run this is the planned result."""
    if not as_json:
        rows = [(one.name, _done(one), one.version, f"{one.rows:,}", f"{one.changes:,}") for one in found]
        print_table(("TABLE", "WOULD BE" if dry else "DONE", "VERSION", "ROWS", "CHANGES"), rows, "no table")
        return
    print_json(
        {
            "dataset": dataset,
            "dry_run": dry,
            "tables": [
                {
                    "table": one.table,
                    "name": one.name,
                    "did": one.did,
                    "version": one.version,
                    "rows": one.rows,
                    "changes": one.changes,
                    "files_added": one.added,
                    "files_removed": one.removed,
                    "shards": [{"shard": shard, "place": place} for shard, place in one.places.items()],
                    "code": None if one.problem is None else one.problem.code,
                    "problem": None if one.problem is None else one.problem.text,
                    "next": None if one.problem is None else one.problem.hint,
                }
                for one in found
            ],
        }
    )
