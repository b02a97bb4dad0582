"""The scratch copy: complete, without anything compiled, and tested as itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import scratch


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    for name in (
        "wormhole/a.py",
        "wormhole/a.cpython-311.so",
        ".venv/bin/python",
        "build/x",
        ".git/HEAD",
        "pyproject.toml",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    monkeypatch.setattr(scratch, "ROOT", root)
    return root


def test_the_copy_holds_sources_and_nothing_compiled(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    (target / "old").mkdir(parents=True)
    assert scratch.make_copy(target) == target
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert found == ["pyproject.toml", "wormhole/a.py"]
    assert not (target / "old").exists()


def test_the_copy_is_first_on_the_path_and_interpreted(tmp_path: Path) -> None:
    environment = scratch.environment(tmp_path)
    assert environment["PYTHONPATH"] == str(tmp_path)
    assert environment["WORMHOLE_BUILD_EXT"] == "no"


@pytest.mark.parametrize(("body", "status"), [("assert True", 0), ("assert False", 1)])
def test_a_run_gives_pytests_status_and_output(tmp_path: Path, body: str, status: int) -> None:
    (tmp_path / "test_x.py").write_text(f"def test_x():\n    {body}\n")
    code, output = scratch.run_tests(tmp_path, ["-q", "test_x.py"], quiet=True)
    assert code == status
    assert "1 passed" in output or "1 failed" in output


def test_a_run_that_hangs_is_killed_and_distinguished(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("import threading\ndef test_x():\n    threading.Event().wait()\n")
    code, _ = scratch.run_tests(tmp_path, ["-q", "test_x.py"], timeout=2.0, quiet=True)
    assert code == 124
