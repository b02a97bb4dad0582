"""Shows tables that ``snapshot`` and ``history`` wrote, as rows and as an object."""

from __future__ import annotations

from spark_replay.tables.folder import Written
from wormholectl.show.printer import print_json, print_table, print_text

__all__ = ["show_written"]


def show_written(written: Written, dataset: str, as_json: bool) -> None:
    """Show tables with their rows and folders, the places up to which they have the shards, and missing parts."""
    if as_json:
        print_json(
            {
                "dataset": dataset,
                "to": written.to,
                "tables": [
                    {"table": table, "folder": one.folder, "rows": one.rows, "problems": list(one.problems)}
                    for table, one in written.tables.items()
                ],
                "shards": [{"shard": shard, "place": place} for shard, place in written.places.items()],
                "left_out": [{"table": table, "because": why} for table, why in written.left_out.items()],
                "problems": list(written.problems),
                "notes": list(written.notes),
            }
        )
        return
    rows = [(table, str(one.rows), f"{written.to}/{one.folder}") for table, one in written.tables.items()]
    print_table(("TABLE", "ROWS", "FOLDER"), rows, "no table was written")
    for shard, place in written.places.items():
        print_text(f"{shard} up to {place}")
    for table, why in written.left_out.items():
        print_text(f"left out: {table}: {why}")
    if written.problems:
        complete = [table for table, one in written.tables.items() if not one.problems]
        which = "no start for a replay of some tables" if complete else "no start for a replay"
        print_text(f"{which}: {'; '.join(written.problems)}")
    for note in written.notes:
        print_text(note)
