"""Runs a program that must not outlive its owner, even if ``kill -9`` ends the owner.

    python -I -S process_guard.py [--user NAME] OWNER_PID FOLDER_TO_REMOVE|'' COMMAND ARGUMENT...

The guard is a separate process between the owner and the program. It watches the owner through a pidfd, which belongs
to the process. ``PR_SET_PDEATHSIG`` alone would fire when the *thread* that started the program ends, so a program
started from a pool's thread would be killed for no reason. The signal is used between guard and program: the guard has
one thread, and when the guard itself is killed, the program is killed too.

Processes that the program started and did not end (a monitor's publishers outlive it) end with the owner too: the guard
is the parent of every process whose own parent ended. When the program ends by itself they stay.

With ``--user`` the program runs as another user, which needs the rights of root; the guard does not change its user.

The first line on standard output is the program's process id. The program's output is written to standard error, which
the owner redirects to a file. The guard ends with the program. On SIGTERM it ends the program. When the owner has ended
it also removes the folder, if one was named, because no other process would. Standard library only, so that it starts
in a fraction of the program's time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TERM_WAIT_S = 2.0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _on_term(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def main(arguments: Sequence[str]) -> int:
    """Guard one program as the module describes. Returns the program's exit status, as far as one was seen."""
    user = None
    if arguments[0] == "--user":
        user, arguments = pwd.getpwnam(arguments[1]), arguments[2:]
    owner, folder, command = int(arguments[0]), arguments[1], list(arguments[2:])
    signal.signal(signal.SIGTERM, _on_term)
    owner_handle = os.pidfd_open(owner)
    if os.getppid() != owner:  # the owner ended before this check; its id may be another process's now
        _remove(folder)
        return 0
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    program: subprocess.Popen[bytes] | None = None
    try:
        # This process has one thread, which makes preexec_fn safe. preexec_fn runs after the change of user, because a
        # change of user would undo its effect.
        program = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )
        sys.stdout.write(f"{program.pid}\n")
        sys.stdout.flush()
        ends = select.poll()
        ends.register(owner_handle, select.POLLIN)
        ends.register(os.pidfd_open(program.pid), select.POLLIN)
        ready = {handle for handle, _ in ends.poll()}
        if owner_handle in ready:
            _end(program)
            _end_left_behind()
            _remove(folder)
        return program.wait()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if program is not None:
            _end(program)


def _end(program: subprocess.Popen[bytes]) -> None:
    if program.poll() is None:
        program.terminate()
        try:
            program.wait(_TERM_WAIT_S)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def _end_left_behind() -> None:
    """Kill every child. Children of a killed child then become children of this process."""
    with contextlib.suppress(OSError):  # a kernel without this list
        while children := _children():
            for pid in children:
                os.kill(pid, signal.SIGKILL)  # the child is not reaped yet, so its id is not used again
                os.waitpid(pid, 0)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def _remove(folder: str) -> None:
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
