"""Which programs of the documents mypy and pyright read."""

from __future__ import annotations

from pathlib import Path

from scripts.programs import write


def test_every_program_with_the_sdk_has_a_file(tmp_path: Path) -> None:
    left_over = tmp_path / "programs" / "old.py"
    left_over.parent.mkdir()
    left_over.write_text("wrong")
    written = write(left_over.parent)
    assert sorted(left_over.parent.iterdir()) == sorted(written)
    pages = {path.stem.rpartition("_")[0] for path in written}
    assert {"readme", "subscriber", "tls"} <= pages
    assert "testing" not in pages
    assert all("subscriber_sdk" in path.read_text() for path in written)
