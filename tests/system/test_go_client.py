"""The subscriber library for Go, ``clients/go``: its own tests, and its subscribers at a real publisher, killed with
``kill -9``.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from conformance.__main__ import run
from conformance.catalogue import cases
from scripts import proto_go
from scripts.clients import GO as CLIENT
from scripts.clients import built_go, go
from scripts.prepare import ROOT
from tests.support.eventually import PATIENCE_S
from tests.support.ports import free_port
from tests.support.seed import SEED
from tests.system.harness.ensemble import Application, Ensemble, Plan
from tests.system.harness.programs import SubscriberProcess

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "2"))
RATE = 40.0
"""Commits a second."""
PAUSE_S = 0.003  # each callback takes so long, so that a kill meets updates that wait
VICTIMS = ("subscriber", "publisher+subscriber")

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``killcheck``, which logs what it is told, and of ``conformance``, which the kit tests."""
    folder = tmp_path_factory.mktemp("go")
    for name in ("killcheck", "conformance"):
        built_go(name, folder)
    return folder


class GoSubscriberProcess(SubscriberProcess):
    """A subscriber of the Go library, in place of :mod:`tests.system.harness.subscriber`."""

    def __init__(self, program: Path, name: str, application: str, folder: Path, settings: dict[str, Any]) -> None:
        super().__init__(name, application, folder, settings, whole=True)
        dies = "from tests.system.harness.child import die_with_parent as d; d()"
        path = str(program)
        self.arguments[:2] = ["-c", f"import os, sys; {dies}; os.execv({path!r}, [{path!r}, sys.argv[1]])"]


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
    assert outcome.left_out == sum(case["feature"] == "counts" for case in cases())


def test_nothing_is_lost_when_its_subscribers_are_killed(
    programs: Path,
    running: Callable[[Plan], AbstractContextManager[Ensemble]],
    tmp_path: Path,
    say: Callable[[str], None],
) -> None:
    """Two of one application, without a filter and with four shards. The checker also proves the order, whole
    transactions, and datamarkers that tell the truth."""
    address = f"127.0.0.1:{free_port()}"
    plan = Plan(
        {"pair": Application({"go-1": None, "go-2": None}, dials=True)},
        zookeeper=False,
        shard_by="{ hash = 4 }",
        publisher=f'attach_listen = "{address}"',
    )
    plan.seed, plan.rate = f"{SEED}/go", RATE
    with running(plan) as ensemble:
        for name in ("go-1", "go-2"):
            options = {"options": {"id": name, "dial": [address]}, "pause": PAUSE_S}
            ensemble.members[name] = GoSubscriberProcess(programs / "killcheck", name, "pair", tmp_path, options)
            ensemble.members[name].start()
        ensemble.tell("go")
        ensemble.await_all()
        for number in range(ROUNDS):
            chance = random.Random(f"{plan.seed}/{number}")
            ensemble.kill_and_start(VICTIMS[number % len(VICTIMS)], chance)
            ensemble.await_all()
            figures = ensemble.figures()["pair"]
            say(f"  round {number} seed {plan.seed}/{number}: updates {figures.updates}, repeated {figures.duplicates}")
        ensemble.tell("pause")
        ensemble.await_all()
        ensemble.check_state()
        for member in ensemble.members.values():
            assert member.stop() == 0, member.tail()
        assert ensemble.publisher.stop() == 0, ensemble.publisher.tail()
        ensemble.gather()
        ensemble.check()
        assert all(checker.reached() for checker in ensemble.checkers.values())
