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


@pytest.mark.parametrize(
    ("program", "status"), [("print('a'); raise SystemExit(3)", 3), ("import time; print('a'); time.sleep(3600)", 124)]
)
def test_a_run_gives_its_status_and_output_and_is_killed_when_it_hangs(
    tmp_path: Path, program: str, status: int
) -> None:
    (tmp_path / "one.py").write_text(program)
    settings = {"PYTHONUNBUFFERED": "1"}
    assert scratch.run_tests(tmp_path, [], timeout=2.0, quiet=True, program=["one"], settings=settings) == (
        status,
        "a\n",
    )
