"""A process of the harness that is forked is as one that the interpreter starts."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from scripts.prepare import ROOT
from tests.system.harness.processes import Process

_TELLS = (
    "import json, os, sys, threading; "
    "print(json.dumps([sys.argv, __name__, os.getcwd(), sorted(os.environ), sorted(os.listdir('/proc/self/fd')), "
    "threading.active_count(), sys.stdin.readline()])); "
    "raise SystemExit(int(sys.argv[1]))"
)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "forked"])
def test_it_has_its_arguments_its_environment_and_its_pipes_and_nothing_else(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIVEN", "yes")
    process = Process("one", ["-c", _TELLS, "3", "more"], tmp_path, talks=True, whole=whole)
    process.start()
    process.say("a line")
    argv, name, folder, environment, descriptors, threads, line = json.loads(process.hear())
    assert argv == ["-c", "3", "more"]
    assert (name, folder, line, threads) == ("__main__", str(ROOT), "a line\n", 1)
    assert environment == sorted({*os.environ, "PYTHONPATH", "PYTHONUNBUFFERED", "WORMHOLE_DEBUG"})
    assert len(descriptors) == 4, "three, and the folder that is listed"
    assert process.hear() == "", "nobody else has the pipe"
    assert process.wait() == 3


def test_a_module_and_what_it_says_of_its_end(tmp_path: Path) -> None:
    process = Process("one", ["-m", "tests.system.harness.none"], tmp_path)
    process.start()
    assert process.wait() == 1
    assert "No module named tests.system.harness.none" in process.tail()


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "forked"])
def test_signals_reach_it(whole: bool, tmp_path: Path) -> None:
    process = Process("one", ["-c", "print('here', flush=True); input()"], tmp_path, talks=True, whole=whole)
    for number in (signal.SIGTERM, signal.SIGKILL):
        process.start()
        assert process.hear() == "here\n"
        assert process.alive
        assert not process.ended
        process.signal(number)
        assert process.wait() == -number
        assert not process.alive
    process.start()
    assert process.stop() == -signal.SIGTERM
    process.start()
    process.kill()
