"""Files of a killed run go once it cannot commit any more, and not before."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyarrow import fs

from spark_replay.export.leftovers import ExportRun, clean, is_ours, noted
from spark_replay.export.port import SeenTable
from spark_replay.tables.columns import TableColumn


@dataclass
class Table:
    """``outcomes``: what is known of runs."""

    root: str
    name: str = "t"
    data: str = "data"
    outcomes: dict[str, bool | None] = field(default_factory=dict)
    filesystem: fs.FileSystem = field(default_factory=fs.LocalFileSystem)

    def look(self) -> SeenTable:
        raise NotImplementedError

    def draft(self, columns: object) -> TableColumn:
        raise NotImplementedError

    def committed(self, run: str, base: str) -> bool | None:
        return self.outcomes.get(run)


@pytest.mark.parametrize(
    ("version", "outcome", "stays", "forgotten"),
    [("4", None, True, False), ("5", False, False, True), ("5", True, True, True), ("5", None, True, True)],
)
def test_what_happens_to_a_run_on_version_4(
    version: str, outcome: bool | None, stays: bool, forgotten: bool, tmp_path: Path
) -> None:
    table = Table(str(tmp_path))
    run = ExportRun(table, "4")  # type: ignore[arg-type]  # it drafts nothing
    run.begin()
    (Path(run.folder) / "x.parquet").touch()
    table.outcomes[run.name] = outcome
    clean(table, version)  # type: ignore[arg-type]
    assert (Path(run.folder).exists(), run.name not in noted(table.filesystem, table.root)) == (stays, forgotten)


def test_names_of_ours() -> None:
    assert [name for name in ("_wormhole", "wormhole-0f", "_delta_log", "x") if is_ours(name)] == [
        "_wormhole",
        "wormhole-0f",
    ]
