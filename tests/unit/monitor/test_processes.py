"""Processes of publishers, their log files and the lock of their folder."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.folder_lock import FolderLock
from monitor.log_files import last_error, log_file, rotate
from monitor.processes import FoundProcess, Process, adopt, command, find, run_file, sink_command, start
from monitor.state import LogKey, ProcessKey, SinkKey
from tests.support.eventually import eventually, patience
from wormhole.host.ready_file import process_started
from wormhole.model.errors import ConfigError

# --- Processes are told apart by number and start, found by their command line, and reaped by whoever is their parent


KEY = LogKey("shop.eu", "main", "db-1")
WAITS = [sys.executable, "-I", "-S", "-c", "print('here', flush=True); input()"]

pytestmark = pytest.mark.allow_blocking("starts processes and looks at /proc")


def test_the_command_line_of_a_publisher_says_what_it_runs(tmp_path: Path) -> None:
    file = run_file(tmp_path, KEY, "abc")
    assert file == tmp_path / "shop.eu.main.db-1.abc.json"
    assert command(file, KEY)[1:] == [
        *("-P", "-m", "wormholectl", "publisher", "run", "-c", str(file), "--log", "shop.eu/main/db-1")
    ]


@pytest.mark.parametrize("key", [KEY, SinkKey("lines.all")], ids=str)
async def test_a_process_is_found_by_its_command_line(
    key: ProcessKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = run_file(tmp_path, key, "abc")
    script = tmp_path / "stub.py"
    script.write_text("import signal; signal.pause()")
    if isinstance(key, SinkKey):
        words = sink_command(file, key, tmp_path / "shop.toml", "zk:2181/w")
    else:
        words = command(file, key)
    process = start([sys.executable, "-I", "-S", str(script), *words[4:]], tmp_path / "log", {})
    try:
        # The kernel lets the parent go on a moment before the new command line can be read.
        await eventually(lambda: find(tmp_path), "it is found")
        assert find(tmp_path) == [FoundProcess(key, "abc", process.pid, process_started(process.pid) or 0)]
        assert find(tmp_path / "elsewhere") == []
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert find(tmp_path) == [], "another user's process is no publisher of ours"
        monkeypatch.undo()
    finally:
        process.signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
    assert find(tmp_path) == []


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
async def test_a_child_is_reaped_with_its_status(tmp_path: Path, code: str, status: int) -> None:
    process = start([sys.executable, "-I", "-S", "-c", code], tmp_path / "log", {})
    async with patience():
        assert await process.wait() == status
    with pytest.raises(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222 - it returns at once
    process.signal(signal.SIGKILL)  # it is gone: nobody else is hit


async def test_it_runs_in_a_session_of_its_own_and_appends_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    code = (
        "import os, sys; print(os.getsid(0) == os.getpid(), os.environ['X']); sys.stderr.write('err\\n'); "
        "sys.stdin.read()"
    )
    process = start([sys.executable, "-I", "-S", "-c", code], log, {"X": "y"})
    async with patience():
        assert await process.wait() == 0
    assert sorted(log.read_text().splitlines()) == ["True y", "before", "err"]


def test_a_log_that_cannot_be_written_is_an_error_and_no_process(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        start(WAITS, tmp_path / "none" / "log", {})


def test_a_process_that_cannot_be_looked_after_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pidfd_open(pid: int) -> int:
        began.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    began: list[int] = []
    monkeypatch.setattr(os, "pidfd_open", pidfd_open)
    with pytest.raises(OSError, match="Too many open files"):
        start(WAITS, tmp_path / "log", {})
    assert process_started(began[0]) is None


async def test_another_parents_child_is_adopted_and_its_end_seen(tmp_path: Path) -> None:
    # The program in between ends at once, so that its child is nobody's that we could wait for.
    child = [*WAITS[:4], "import signal; signal.pause()"]
    code = f"import subprocess; print(subprocess.Popen({child!r}, stdout=subprocess.DEVNULL).pid)"
    between = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    pid = int((await between.communicate())[0])
    process = adopt(FoundProcess(KEY, "abc", pid, process_started(pid) or 0))
    assert isinstance(process, Process)
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    process.signal(signal.SIGTERM)
    async with patience():
        assert await waiting in (None, -signal.SIGTERM)  # the latter where this process reaps orphans


def test_who_is_gone_or_another_is_not_adopted() -> None:
    me = os.getpid()
    assert adopt(FoundProcess(KEY, "abc", me, (process_started(me) or 0) + 1)) is None
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert adopt(FoundProcess(KEY, "abc", ended.pid, 1)) is None


async def test_waiting_can_be_given_up_and_leaves_the_process_alone(tmp_path: Path) -> None:
    process = start([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"], tmp_path / "log", {})
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert process_started(process.pid) is not None
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED)  # noqa: ASYNC222 - it was killed


# --- Publishers' output is bounded, and its end says why one ended


def test_a_large_file_is_taken_aside_while_its_writer_goes_on(tmp_path: Path) -> None:
    path = log_file(tmp_path, "shop/main/db1")
    assert path.name == "shop.main.db1.log"
    assert not rotate(path, 10), "there is none yet"
    with path.open("a") as writer:
        writer.write("0123456789\n")
        writer.flush()
        assert not rotate(path, 11)
        assert rotate(path, 10)
        writer.write("more\n")
        writer.flush()
        assert path.read_text() == "more\n", "it goes on at the beginning, with no hole"
        writer.write("another\n")
        writer.flush()
        assert rotate(path, 10)
    assert path.read_text() == ""
    assert (tmp_path / "shop.main.db1.log.1").read_text() == "more\nanother\n", "one older file, no more"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_that_cannot_be_kept_is_emptied_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("0123456789")
    (tmp_path / "a.log.1").mkdir()
    with pytest.raises(OSError):
        rotate(path, 5)
    assert path.stat().st_size == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("one\ntwo\n\n", "two"),
        ("started\nerror: a\n  next: do this\nerror: b\n  next: do that\n", "b. Next: do that"),
        ("error: c\n  next:\n    SET x = 1;\n    FLUSH BINARY LOGS;\n", "c. Next: SET x = 1; FLUSH BINARY LOGS;"),
        ("error: alone\n", "alone"),
        ('one\n{"level": "info", "message": "two"}\n', "two"),
        ('{"level": "info"}', '{"level": "info"}'),
        ("[1]", "[1]"),
        ("error: alone\nTraceback\n", "alone"),
        ("[" * 9_000, "[" * 9_000),
        ("x" * 100_000 + "\nerror: at the end\n", "at the end"),
    ],
)
def test_the_last_words_are_the_last_error_and_what_to_do(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "a.log"
    path.write_text(text)
    assert last_error(path) == words


def test_no_file_has_no_last_words(tmp_path: Path) -> None:
    assert last_error(tmp_path / "none.log") == ""


# --- One process at a time in a folder; who comes second is told whom it met


HOLDER = """
import sys, pathlib
from monitor.folder_lock import FolderLock
with FolderLock(pathlib.Path(sys.argv[1]), "a monitor"):
    print("held", flush=True)
    input()
"""


def test_it_is_held_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "monitor.lock"
    with FolderLock(path, "a monitor"):
        with pytest.raises(ConfigError, match=rf"process {os.getpid()} \[already-running\]"):
            FolderLock(path, "a monitor").__enter__()
    with FolderLock(path, "a monitor"):
        pass


def test_it_goes_with_a_killed_holder(tmp_path: Path) -> None:
    path = tmp_path / "monitor.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(ConfigError, match=f"process {holder.pid}"):
        FolderLock(path, "a monitor").__enter__()
    holder.kill()
    holder.communicate()
    with FolderLock(path, "a monitor"):
        pass


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be created") as caught:
        FolderLock(tmp_path / "file" / "monitor.lock", "a monitor").__enter__()
    assert "state_dir" in str(caught.value.hint)
