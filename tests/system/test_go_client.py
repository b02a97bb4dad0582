"""The subscriber library for Go, ``clients/go``: its own tests, and its subscribers at a real publisher, killed with
``kill -9``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from conformance.__main__ import run
from conformance.catalogue import cases
from scripts import proto_go
from scripts.clients import GO as CLIENT
from scripts.clients import built_go, go
from scripts.prepare import ROOT
from tests.support.eventually import PATIENCE_S
from tests.system.harness.ensemble import Ensemble, Plan
from tests.system.harness.other_languages import nothing_is_lost

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``killcheck``, which logs what it is told, and of ``conformance``, which the kit tests."""
    folder = tmp_path_factory.mktemp("go")
    for name in ("killcheck", "conformance"):
        built_go(name, folder)
    return folder


def test_its_code_is_formatted_and_vetted_and_its_tests_pass() -> None:
    files = [str(path.relative_to(CLIENT)) for path in sorted(CLIENT.rglob("*.go"))]
    assert not subprocess.run(["gofmt", "-l", *files], cwd=CLIENT, capture_output=True, text=True, check=True).stdout
    go("vet", "./...")
    go("test", "./...")


def test_the_programs_of_its_page_compile(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "client-go.md").read_text()
    programs = re.findall(r"```go\n(.*?)```", page, re.DOTALL)
    (module,) = re.findall(r"```text\n(module .*?)```", page, re.DOTALL)
    assert len(programs) == 2
    (tmp_path / "go.mod").write_text(module.replace("../wormhole/clients/go", str(CLIENT)))
    shutil.copy(CLIENT / "go.sum", tmp_path)
    for number, program in enumerate(programs):
        folder = tmp_path / f"program{number}"
        folder.mkdir()
        (folder / "main.go").write_text(program)
    go("mod", "tidy", folder=tmp_path)
    go("vet", "./...", folder=tmp_path)


def test_its_generated_code_is_what_the_protocol_gives() -> None:
    assert proto_go.differences() == []


async def test_it_passes_the_conformance_kit(programs: Path) -> None:
    declared = tomllib.loads((CLIENT / "conformance.toml").read_text())
    outcome = await run(str(programs / "conformance"), declared, patience=PATIENCE_S)
    assert not outcome.failed
    assert outcome.found
    assert outcome.left_out == sum(case["feature"] in {"counts", "verify"} for case in cases())


def test_nothing_is_lost_when_its_subscribers_are_killed(
    programs: Path, running: Callable[[Plan], AbstractContextManager[Ensemble]], say: Callable[[str], None]
) -> None:
    # Each callback takes a while, so that a kill meets updates that wait.
    nothing_is_lost([str(programs / "killcheck")], running, say, pause=0.003)
