"""Nothing a guard started outlives its owner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.eventually import PATIENCE_S
from wormhole.host import process_guard

# An owner that starts a guarded `sleep`, tells both ids and then waits to be killed.
OWNER = """
import os, subprocess, sys, threading
def start():
    global guard
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", sys.argv[1], str(os.getpid()), sys.argv[2], *(sys.argv[3:] or ["sleep", "1000"])],
        stdout=subprocess.PIPE, start_new_session=True)
    print(guard.pid, guard.stdout.readline().decode().strip(), flush=True)
thread = threading.Thread(target=start)   # the thread that started it ends at once: the program must not
thread.start()
thread.join()
sys.stdin.read()
"""

# A program that starts another in a session of its own and says so through a pipe; then it ends, or waits.
PARENT = """
import pathlib, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=-3, stderr=-3)
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(float(sys.argv[2]))
"""


def gone(handle: int, timeout: float = PATIENCE_S) -> bool:
    """Whether the process behind a pidfd ended within ``timeout`` seconds."""
    try:
        return bool(select.select([handle], [], [], timeout)[0])
    finally:
        os.close(handle)


def start(folder: Path | str, *command: str) -> tuple[subprocess.Popen[str], int, int]:
    """The owner, and the ids of guard and program."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(process_guard.__file__), str(folder), *command],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert owner.stdout is not None
    guard, program = map(int, owner.stdout.readline().split())
    return owner, guard, program


def end(owner: subprocess.Popen[str]) -> None:
    owner.kill()
    owner.communicate()


def test_the_program_and_the_folder_go_with_a_killed_owner(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "data").write_text("x")
    owner, guard, program = start(folder)
    handles = os.pidfd_open(guard), os.pidfd_open(program)
    assert not select.select(handles, [], [], 0.1)[0], "the thread that started the guard is gone, the program goes on"
    end(owner)
    assert all(map(gone, handles))
    assert not folder.exists()


def test_what_the_program_left_behind_goes_with_a_killed_owner(tmp_path: Path) -> None:
    os.mkfifo(told := tmp_path / "child")
    owner, guard, program = start("", sys.executable, "-c", PARENT, str(told), "1000")
    child = os.pidfd_open(int(told.read_text()))
    handles = os.pidfd_open(guard), os.pidfd_open(program), child
    end(owner)
    assert all(map(gone, handles))


def test_what_a_program_left_behind_that_ended_by_itself_stays(tmp_path: Path) -> None:
    told = tmp_path / "child"
    assert guarded(sys.executable, "-c", PARENT, str(told), "0").returncode == 0
    os.kill(int(told.read_text()), signal.SIGKILL)  # it is there to be killed


def test_the_program_goes_with_a_killed_guard() -> None:
    owner, guard, program = start("")
    handle = os.pidfd_open(program)
    os.kill(guard, signal.SIGKILL)
    assert gone(handle)
    end(owner)


def test_a_terminated_guard_ends_the_program_and_leaves_the_folder(tmp_path: Path) -> None:
    owner, guard, program = start(tmp_path)
    handles = os.pidfd_open(guard), os.pidfd_open(program)
    os.kill(guard, signal.SIGTERM)
    assert all(map(gone, handles))
    end(owner)
    assert tmp_path.exists()


def guarded(*command: str, owner: int | None = None, folder: str = "") -> subprocess.CompletedProcess[str]:
    arguments = [str(process_guard.__file__), str(owner or os.getpid()), folder, *command]
    return subprocess.run([sys.executable, "-I", "-S", *arguments], capture_output=True, text=True, timeout=PATIENCE_S)


def test_the_guard_ends_with_the_program_and_hands_on_its_status_and_output() -> None:
    done = guarded("sh", "-c", "echo told; exit 7")
    assert done.returncode == 7
    assert done.stderr == "told\n"
    assert done.stdout.strip().isdigit()


def test_an_owner_that_is_gone_already_starts_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    # Process 1 is not the parent: as if the owner had died and its number belonged to another process now.
    done = guarded("sh", "-c", "echo started", owner=1, folder=str(folder))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert not folder.exists()
