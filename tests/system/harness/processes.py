"""One process of ours at a time: started, frozen, killed with ``kill -9``, started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.prepare import ROOT
from tests.support.eventually import PATIENCE_S, until
from tests.system.harness import forked

_TAIL = 4000
_TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """A Python process; every start is a run of its own with its own output file ``<folder>/<name>.<run>.out``.

    ``talks``: commands go to its standard input and answers come from its standard output. ``environment``: what it has
    besides ours. ``whole``: it begins with the interpreter, as what is measured does; otherwise it is forked from a
    process that has imported our packages (:mod:`tests.system.harness.forked`).
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        folder: Path,
        *,
        talks: bool = False,
        environment: Mapping[str, str] | None = None,
        whole: bool = False,
    ) -> None:
        self.name = name
        self.arguments = list(arguments)
        self.folder = folder
        self.runs = 0
        self.tree = ROOT
        """The checkout whose code the next run has, and what it starts in turn."""
        self._talks = talks
        self._environment = {"PYTHONUNBUFFERED": "1", "WORMHOLE_DEBUG": "1", **(environment or {})}
        self.whole = whole or environment is not None
        self._popen: subprocess.Popen[str] | forked.Forked | None = None

    @property
    def output(self) -> Path:
        """What the present run writes."""
        return self.folder / f"{self.name}.{self.runs}.out"

    @property
    def pid(self) -> int:
        """The process; it must run."""
        assert self._popen is not None, f"{self.name} does not run"
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def ended(self) -> bool:
        """Whether its present run ended by itself."""
        return self._popen is not None and self._popen.poll() is not None

    def start(self) -> None:
        """Start another run."""
        assert not self.alive, f"{self.name} runs already"
        self.runs += 1
        environment = {**os.environ, "PYTHONPATH": str(self.tree), **self._environment}
        with self.output.open("wb") as output, open(os.devnull) as nothing:
            stdin = subprocess.PIPE if self._talks else nothing.fileno()
            stdout = subprocess.PIPE if self._talks else output.fileno()
            if not self.whole and self.tree == ROOT:
                self._popen = forked.start(self.arguments, environment, stdin, stdout, output.fileno())
                return
            self._popen = subprocess.Popen(
                [sys.executable, *self.arguments],
                cwd=self.tree,
                stdin=stdin,
                stdout=stdout,
                stderr=output,
                text=True,
                env=environment,
            )

    def kill(self) -> None:
        """``kill -9``, and wait until it is gone."""
        if self._popen is not None:
            self._popen.kill()
            self._reap()

    def signal(self, number: int) -> None:
        """Send a signal, e.g. SIGSTOP."""
        os.kill(self.pid, number)

    def stop(self) -> int:
        """SIGTERM, and wait; returns the exit status. A process that does not end is killed and told as -9."""
        if self._popen is None:
            return 0
        self._popen.terminate()
        try:
            status = self._popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            status = -signal.SIGKILL
        self._reap()
        return status

    def wait(self) -> int:
        """Wait for its end by itself; returns the exit status. Raises ``TimeoutExpired``."""
        assert self._popen is not None
        status = self._popen.wait(PATIENCE_S)
        self._reap()
        return status

    def say(self, line: str) -> None:
        """A line to its standard input."""
        assert self._popen is not None
        assert self._popen.stdin is not None
        self._popen.stdin.write(line + "\n")
        self._popen.stdin.flush()

    def hear(self) -> str:
        """The next line of its standard output; empty when it ended."""
        assert self._popen is not None
        assert self._popen.stdout is not None
        return self._popen.stdout.readline()

    def await_output(self, text: str) -> None:
        """Until the present run has written ``text``. Raises ``AssertionError`` when it ended without."""

        def written() -> bool:
            ended = not self.alive
            found = text in self.output.read_text(errors="replace")
            assert found or not ended, f"no {text!r} in {self.tail()}"
            return found

        until(written, lambda: f"no {text!r} in {self.tail()}")

    def tail(self) -> str:
        """The end of what the present run wrote."""
        if not self.output.exists():
            return f"--- {self.name}: never ran"
        text = self.output.read_text(errors="replace")
        return f"--- {self.name} (run {self.runs}, {'alive' if self.alive else 'ended'}):\n{text[-_TAIL:]}"

    def _reap(self) -> None:
        assert self._popen is not None
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._popen = None


def peak_memory(pid: int) -> int:
    """Most memory that the process ever had resident (VmHWM), bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the kernel tells no VmHWM")


def processor_time(pid: int) -> float:
    """What all threads of the process used of the processors so far, seconds."""
    user, system = _stat(pid)[11:13]
    return (int(user) + int(system)) / _TICKS


def others_time() -> float:
    """What all processes of the machine but this one and those that it started used of the processors so far, seconds.
    A process that has ended counts as ours once its parent has waited for it.
    """
    parents, times = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                found = _stat(pid := int(folder.name))
                parents[pid], times[pid] = int(found[1]), sum(map(int, found[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    user, nice, system, _, _, irq, soft_irq, stolen = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft_irq + stolen - sum(times.get(pid, 0) for pid in ours)) / _TICKS


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
