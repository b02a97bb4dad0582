"""A server on loopback that a process starts for itself and that ends with it: for `wormholectl up`, the demo, tests
and benchmarks.

All its files are in one folder. It ends with its owner (:mod:`wormhole.host.process_guard`), also when the owner is
killed. The subclass has everything that is specific to a kind of server. Linux only (pidfd).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from wormhole.host import process_guard
from wormhole.model.errors import SourceUnavailable, WormholeError

__all__ = ["LOG_TAIL", "PrivateServer"]

LOG_TAIL: Final = 2000
"""How many characters of a log's end an error shows."""
_POLL_S: Final = 0.02
_PORTS_TO_TRY: Final = 5
_TAKEN: Final = ("address already in use", "bindexception")


class _PortTakenError(Exception):
    """Another program took the port after it was chosen and before the server bound it."""


class PrivateServer(ABC):
    """One server on ``127.0.0.1``. Usable as a context manager; the methods block for up to some seconds.

    Without ``folder`` it uses a private temporary folder that is removed with it. A given folder is made if necessary,
    and its data stays. ``remove``: a folder around the given one, which is removed when the owner is killed.
    :meth:`start` after :meth:`stop` or :meth:`kill` continues on the same port with the same data.
    """

    flavour: ClassVar[str]
    """The name of its temporary folder and its log."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    start_timeout_s: ClassVar[float] = 60.0
    stop_timeout_s: ClassVar[float] = 30.0

    host: Final = "127.0.0.1"

    def __init__(self, folder: Path | None = None, *, remove: str = "") -> None:
        self.port = 0
        self.pid = 0
        """The process id; 0 while the server does not run."""
        self._given = folder.absolute() if folder is not None else None
        self._remove = remove
        self._folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.pid else "stopped"
        return f"<{type(self).__name__} {self.host}:{self.port} {state}>"

    @property
    def title(self) -> str:
        """The server's name in messages."""
        return f"private {self.flavour} server"

    # -- steps that a kind of server defines

    @abstractmethod
    def start_command(self) -> list[str]:
        """The words that start the server on :attr:`port`."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether *this* server answers. Another server on the same port has another data folder."""

    def find_programs(self) -> None:  # noqa: B027 - some kinds find theirs earlier
        """Find the programs of the server, before anything is made.

        Raises :class:`~wormhole.model.errors.ConfigError` when there is no such server on this machine.
        """

    @abstractmethod
    def prepare(self) -> None:
        """Make the missing files of the folder."""

    def former_port(self) -> int:
        """The port that a former server had in this folder, or 0."""
        return 0

    def admit(self) -> None:  # noqa: B027 - the usual case
        """Do what a server needs after each start, before its owner may use it."""

    def temporary_parent(self) -> Path | None:
        """The folder in which a private folder has to be; ``None``: any."""
        return None

    def guard_options(self) -> list[str]:
        """Options of the guard (:mod:`wormhole.host.process_guard`)."""
        return []

    def process_options(self) -> dict[str, Any]:
        """Further arguments of ``Popen``."""
        return {}

    def failure(self, what: str, hint: str) -> WormholeError:
        """The error for a server that does not start."""
        return SourceUnavailable(f"the {self.title} {what}", hint=hint)

    def start_failure(self, what: str, said: str) -> WormholeError:
        """The error for a server that does not answer. ``said``: the content of its log."""
        return self.failure(f"{what}; its log ends: {said[-LOG_TAIL:].strip() or '(empty)'}", f"see {self.log}")

    # -- paths

    @property
    def folder(self) -> Path:
        """The folder of all its files, from the first start to :meth:`close`."""
        assert self._folder is not None, "never started, or closed"
        return self._folder

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """The server's output."""
        return self.folder / f"{self.flavour}.log"

    @property
    def alive(self) -> bool:
        """Whether the server was started and has not ended by itself since."""
        return self._guard is not None and self._guard.poll() is None

    # -- start and stop

    def start(self) -> None:
        """Start the server and wait until it answers. Does nothing if it runs.

        Raises :class:`~wormhole.model.errors.ConfigError` when there is no such server on this machine, and
        :meth:`failure` with the end of its log when it does not start.
        """
        if self._guard is not None:
            return
        self.find_programs()
        if self._folder is None:
            prefix = f"wormhole-{self.flavour}-"
            self._folder = self._given or Path(tempfile.mkdtemp(prefix=prefix, dir=self.temporary_parent()))
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        self.prepare()
        fixed = self.port
        # The former port is used again, so that clients find the server at the address that they know.
        first = fixed or self.former_port()
        for _ in range(1 if fixed else _PORTS_TO_TRY):
            self.port, first = first or _free_port(), 0
            try:
                self.launch()
                self.admit()
                return
            except _PortTakenError:
                self.end_guard()
            except BaseException:
                self.end_guard()
                self.port = fixed
                raise
        port, self.port = self.port, fixed
        raise self.failure(
            f"cannot listen on {self.host}:{port}: the port is taken",
            "end the program that listens there, or start again to get another port",
        )

    def stop(self) -> None:
        """Shut the server down in order; its data stays. Idempotent."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End the server as ``kill -9`` does; its data stays. Idempotent."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End the server. If its folder is a private one, it ends at once and the folder is removed. Idempotent."""
        if self._given is None:
            self.kill()
        else:
            self.stop()
        if self._folder is not None and self._given is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside

    def launch(self) -> None:
        """Start the process and wait until the server answers."""
        guard = [sys.executable, "-I", "-S", process_guard.__file__, *self.guard_options(), str(os.getpid())]
        guard.append(self._remove if self._given else str(self.folder))
        words = [*guard, *self.start_command()]
        # A new file: processes that a killed server left running may still write to the former one.
        self.log.unlink(missing_ok=True)
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C in a terminal reaches only the owner, which stops the server in its own time.
            self._guard = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                **self.process_options(),
            )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline() or 0)
        deadline = time.monotonic() + self.start_timeout_s
        while not self.answers():
            ended = not self.alive
            said = self.log.read_text(errors="replace")
            if ended and any(text in said.lower() for text in _TAKEN):
                raise _PortTakenError
            if ended or time.monotonic() > deadline:
                what = "ended at once" if ended else f"did not answer within {self.start_timeout_s:.0f} s"
                raise self.start_failure(what, said)
            time.sleep(_POLL_S)

    def _end(self, number: signal.Signals) -> None:
        # After the guard has ended, the server has ended too, and its process id may be another process's.
        if self._guard is not None and self._guard.poll() is None and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(self.stop_timeout_s)
        self.end_guard()

    def end_guard(self) -> None:
        """End the process, if there is one."""
        guard, self._guard, self.pid = self._guard, None, 0
        if guard is None:
            return
        if guard.poll() is None:
            guard.kill()  # PR_SET_PDEATHSIG then kills the server too
            guard.wait()
        if guard.stdout is not None:
            guard.stdout.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
