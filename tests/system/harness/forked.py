"""Processes of the harness, forked from one that has imported what they need: the imports are most of what a start
takes of the processors, and a run has hundreds of starts.

``python -m tests.system.harness.forked FD`` is that one. It takes requests at the socket ``FD``, forks for each, tells
the child's process id, and its exit status once it has ended. It ends with the socket, and its children with it. A
child is as if the interpreter had been started with its arguments; only ``/proc`` shows those of the process that it is
forked from.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from scripts.prepare import ROOT

__all__ = ["Forked", "start"]

_IMPORTED: Final = ("wormholectl.app", "publisher.daemon", "subscriber_sdk", "wormhole.coordination.connect", "uvloop")
_REQUEST_BYTES: Final = 1 << 20
_MOST_DESCRIPTORS: Final = 1 << 16
_NUMBER: Final = array.array("i").itemsize


# --- the test's side ------------------------------------------------------------------------------------------------


class Forked:
    """What a test does with ``subprocess.Popen``, done to a forked process."""

    def __init__(
        self, arguments: Sequence[str], pid: int, told: socket.socket, pipes: Sequence[IO[str] | None]
    ) -> None:
        self.args = arguments
        self.pid = pid
        self.returncode: int | None = None
        self.stdin, self.stdout = pipes
        self._told = told

    def poll(self) -> int | None:
        """The exit status; ``None``: it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; returns the exit status, negative for a signal. Raises ``TimeoutExpired``."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
            self.returncode = _number(self._told)
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to one that runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


_starting: Final = threading.Lock()


def start(arguments: Sequence[str], environment: Mapping[str, str], stdin: int, stdout: int, stderr: int) -> Forked:
    """``python ARGUMENTS``, which are ``-c CODE …`` or ``-m MODULE …``, in the tree's folder.

    ``stdin`` and ``stdout``: a file's descriptor, or ``subprocess.PIPE`` and then lines of text.
    """
    given: list[int] = []
    ours: list[IO[str] | None] = []
    for one, mode in ((stdin, "w"), (stdout, "r")):
        if one != subprocess.PIPE:
            given.append(os.dup(one))
            ours.append(None)
            continue
        reads, writes = os.pipe()
        theirs, own = (reads, writes) if mode == "w" else (writes, reads)
        given.append(theirs)
        ours.append(os.fdopen(own, mode))
    request = json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode()
    told, answers = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _starting:
            socket.send_fds(_parent(), [request], [answers.fileno(), *given, stderr])
        answers.close()
        pid = _number(told)
    finally:
        for one in given:
            os.close(one)
    return Forked(arguments, pid, told, ours)


@functools.cache
def _parent() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            pass_fds=[theirs.fileno()],
        )

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


def _number(told: socket.socket) -> int:
    data = told.recv(_NUMBER, socket.MSG_WAITALL)
    assert len(data) == _NUMBER, "the process that forks has ended"
    return array.array("i", data)[0]


# --- the process that forks -----------------------------------------------------------------------------------------


def serve(requests: socket.socket) -> dict[str, Any]:
    """Fork for each request until there are no more. Returns in a child only, with its request."""
    children: dict[int, tuple[int, socket.socket]] = {}
    events = select.poll()
    events.register(requests.fileno(), select.POLLIN)
    while True:
        for ready, _ in events.poll():
            if ready != requests.fileno():
                pid, answers = children.pop(ready)
                events.unregister(ready)
                os.close(ready)
                _tell(answers, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                answers.close()
                continue
            data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 4)
            if not data:
                for pid, _ in children.values():
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                sys.exit()
            pid = os.fork()
            if pid == 0:
                for number, descriptor in enumerate(descriptors[1:]):
                    os.dup2(descriptor, number)
                requests.detach()
                for _, answers in children.values():
                    answers.detach()
                os.closerange(3, _MOST_DESCRIPTORS)
                found: dict[str, Any] = json.loads(data)
                return found
            answers = socket.socket(fileno=descriptors[0])
            for descriptor in descriptors[1:]:
                os.close(descriptor)
            _tell(answers, pid)
            ended = os.pidfd_open(pid)
            children[ended] = pid, answers
            events.register(ended, select.POLLIN)


def _tell(answers: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the test that started it has ended
        answers.send(array.array("i", (number,)).tobytes())


def become(request: dict[str, Any]) -> None:
    """Run as the interpreter with these arguments would."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    kind, what, *rest = request["arguments"]
    if kind == "-m":
        sys.argv = [what, *rest]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
        return
    assert kind == "-c", kind
    sys.argv = [kind, *rest]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(what, "<string>", "exec"), main.__dict__)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when the tests do
    for name in _IMPORTED:
        importlib.import_module(name)
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a process with threads is not forked"
    gc.collect()
    gc.freeze()
    become(serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    _main()
