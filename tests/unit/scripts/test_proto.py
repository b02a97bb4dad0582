"""Generated code: what is committed is what ``proto/`` gives, and a difference is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts import prepare, proto


def test_the_committed_generated_code_is_fresh() -> None:
    assert proto.differences() == []


def test_an_edit_a_missing_and_a_left_over_file_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = tmp_path / "wormhole"
    shutil.copytree(prepare.ROOT / "wormhole" / "wire", committed / "wire")
    monkeypatch.setattr(proto, "ROOT", tmp_path)
    assert proto.differences() == []
    edited, missing, *_ = sorted((committed / "wire" / "v1").glob("*_pb2.py"))
    edited.write_text(edited.read_text() + "\n")
    missing.unlink()
    (committed / "wire" / "v1" / "old_pb2.py").write_text("")
    found = "\n".join(proto.differences())
    assert f"{edited.name} is not what proto/ gives" in found
    assert f"{missing.name} is missing" in found
    assert "old_pb2.py has no .proto any more" in found
