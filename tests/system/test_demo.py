"""``make demo``, played once and short: what it prints, how it ends, and that nothing of it stays."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.demo.datastore import KINDS
from scripts.prepare import ROOT
from tests.support.eventually import until
from tests.support.marked import MARK, listening, marked

COMMAND = [sys.executable, "-m", "examples.demo"]


@dataclass(frozen=True)
class Played:
    """One run: exit status, lines, errors, addresses that it listened at, and the folder that was kept."""

    status: int
    lines: list[str]
    errors: str
    addresses: set[str]
    folder: Path
    mark: str


def _start(folder: Path, mark: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder), MARK: mark}
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


SERVERS = {"mysql": "mariadb_server", "postgres": "postgres_server"}


# Whole on one datastore; of the two servers each is started, and ended early (below).
PLAYED = [pytest.param(kind, marks=[pytest.mark.soak] * (kind in SERVERS)) for kind in KINDS]


@pytest.fixture(scope="module", params=PLAYED)
def played(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Played:
    folder, mark = tmp_path_factory.mktemp("demo"), uuid.uuid4().hex
    addresses: set[str] = set()
    datastore = str(request.param)
    if datastore in SERVERS:
        request.getfixturevalue(SERVERS[datastore])  # skips where there is none
    with _start(folder, mark, "--datastore", datastore, "--seconds", "6", "--seed", "7", "--json", "--keep") as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:  # while it runs, at every line
            lines.append(line.rstrip("\n"))
            addresses |= listening(marked(mark))
        assert process.stderr is not None
        errors = process.stderr.read()
    return Played(process.returncode, lines, errors, addresses, next(folder.glob("wormhole-demo-*"), folder), mark)


def test_a_run_loses_nothing_and_reports_it(played: Played) -> None:
    assert played.status == 0, "\n".join([*played.lines, played.errors])
    result = json.loads(played.lines[-1])
    assert result["lost"] == result["order_violations"] == result["differs"] == 0
    assert result["kills"] == 2
    assert result["updates"] > 1000
    assert result["caravans_max"] >= 2
    assert result["p99_all_ms"] > 0  # p99_ms may have nothing to count: on a busy machine all six seconds are recovery


def test_it_fits_the_screen(played: Played) -> None:
    assert len(played.lines) <= 60
    assert max(map(len, played.lines[:-1])) <= 100  # the last line is for programs


def test_it_tells_the_story(played: Played) -> None:
    story = "\n".join(played.lines)
    for part in (
        "assigned",
        "killed with kill -9",
        "shards have moved",
        "starts what the configuration says; its page: http://127.0.0.1:",
        "publisher started again by the monitor (pid ",
        "went on from its datamarkers",
        "behind the change buffer",
        "has caught up",
        "Nothing lost, nothing out of order",
    ):
        assert part in story, f"{part!r} is missing in:\n{story}\n{played.errors}"


def test_it_listens_on_loopback_only(played: Played) -> None:
    assert played.addresses
    assert all(ipaddress.ip_address(address).is_loopback for address in played.addresses), played.addresses


def test_no_process_stays(played: Played) -> None:
    assert marked(played.mark) == {}


def test_a_lost_update_is_noticed_and_named(played: Played) -> None:
    outcome = subprocess.run(
        [*COMMAND, "--check", str(played.folder), "--inject", "lose-one", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 1, outcome.stderr
    named = [line for line in outcome.stdout.splitlines() if line.startswith("LOST: cache never received the ")]
    assert len(named) == 1
    assert "users user-" in named[0] or "orders order-" in named[0]
    assert json.loads(outcome.stdout.splitlines()[-1])["lost"] == 1


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    outcome = subprocess.run([*COMMAND, "--check", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert outcome.returncode == 1
    assert "holds no finished run" in outcome.stderr
    assert "--keep" in outcome.stderr


@pytest.mark.parametrize(
    ("number", "datastore"),
    [
        pytest.param(signal.SIGINT, "postgres", marks=pytest.mark.soak),
        pytest.param(signal.SIGINT, "rocksdb", marks=pytest.mark.soak),
        pytest.param(signal.SIGKILL, "rocksdb", marks=pytest.mark.soak),
        (signal.SIGKILL, "mysql"),
    ],
    ids=["Ctrl-C with PostgreSQL", "Ctrl-C", "kill -9", "kill -9 with MariaDB"],
)
def test_its_processes_end_with_it(
    tmp_path: Path, number: signal.Signals, datastore: str, request: pytest.FixtureRequest
) -> None:
    if datastore in SERVERS:
        request.getfixturevalue(SERVERS[datastore])
    mark = uuid.uuid4().hex
    with _start(tmp_path, mark, "--datastore", datastore, "--seconds", "30") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "publisher of shop" in line:
                break
        assert len(marked(mark)) > 5
        process.send_signal(number)
        process.stdout.read()
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    until(
        lambda: not marked(mark) and not any(tmp_path.iterdir()),
        lambda: f"left: {marked(mark)} {list(tmp_path.rglob('*'))}",
    )  # guards notice their owner's end by themselves: there is no event to wait for
