from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from spark_replay.spark.scratch import Scratch, set_variables


def _mode(folder: str | Path) -> int:
    return stat.S_IMODE(Path(folder).stat().st_mode)


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)


def test_a_jvm_has_its_files_where_only_its_user_may_enter(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        scratch = Scratch()
        assert list(tmp_path.iterdir()) == [], "a session that runs already needs none"
        found, set_ = scratch.variables(local=True), scratch.settings({})
    finally:
        os.umask(before)
    (folder,) = scratch.folders
    assert _mode(folder) == 0o700
    assert found["TMPDIR"] == str(folder)
    assert f'-Djava.io.tmpdir="{folder}"' in found["SPARK_SUBMIT_OPTS"]
    assert found["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert set_ == {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    scratch.remove()
    assert not folder.exists()


def test_folders_that_the_user_chose_get_private_ones_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, roots)))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g")
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.1")
    scratch = Scratch()
    found = scratch.variables(local=True)
    assert found["SPARK_SUBMIT_OPTS"].startswith("-Xmx1g ")
    assert found["SPARK_LOCAL_IP"] == "10.0.0.1"
    inside = [Path(one) for one in found["SPARK_LOCAL_DIRS"].split(",")]
    assert [one.parent for one in inside] == roots
    chosen = scratch.settings({"spark.local.dir": str(roots[0]), "spark.sql.warehouse.dir": "w"})
    assert Path(chosen.pop("spark.local.dir")).parent == roots[0]
    assert chosen == {}
    assert {_mode(one) for one in scratch.folders} == {0o700}
    assert "SPARK_LOCAL_IP" not in Scratch().variables(local=False)


def test_variables_are_set_within_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "before")
    with pytest.raises(ValueError, match="inside"), set_variables({"TMPDIR": "x", "SPARK_LOCAL_IP": "y"}):
        assert (os.environ["TMPDIR"], os.environ["SPARK_LOCAL_IP"]) == ("x", "y")
        raise ValueError("inside")
    assert os.environ["TMPDIR"] == "before"
    assert "SPARK_LOCAL_IP" not in os.environ
