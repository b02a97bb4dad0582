"""Runs a reader once: its outcome, and the processor time of all its processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from benchmarks.cases import BenchmarkError, memory_peak_mib, scratch
from benchmarks.peers.outcome import Expected, Outcome
from benchmarks.peers.reader import Program

__all__ = ["Run", "run"]

_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Run:
    """``seconds``: from the first row to the last. ``cpu_s``: the processor time of all processes, start and end
    included.

    ``peak_mib``: the peak of their memory together, where the reader reports its own.
    """

    rows: int
    seconds: float
    cpu_s: float
    peak_mib: float = 0.0


class _Process:
    def __init__(self, program: Program, environment: dict[str, str], stdin: IO[bytes] | None, errors: Path) -> None:
        self.program = program
        self._errors = errors
        with errors.open("wb") as told:
            self._process = subprocess.Popen(
                program.words, stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=told, env=environment
            )
        self.cpu_s = 0.0

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def line(self) -> str:
        """The next line that it prints. Raises ``BenchmarkError`` when it ends or says nothing for minutes."""
        if not select.select([self.stdout], [], [], _TIMEOUT_S)[0]:
            raise BenchmarkError(f"{self.program.words[0]} printed nothing for {_TIMEOUT_S:.0f} s")
        line = self.stdout.readline().decode()
        if not line:
            raise BenchmarkError(f"{self.program.words[0]} ended: {self._last_words()}")
        return line.strip()

    def peak_mib(self) -> float:
        """The most memory that it took; 0 when it has ended."""
        return memory_peak_mib(self._process.pid)

    def end(self, *, kill: bool) -> None:
        """End it, or with ``kill=False`` wait for its own end, and take its processor time."""
        if self._process.returncode is not None:
            return
        if not kill:
            ended = os.pidfd_open(self._process.pid)
            select.select([ended], [], [], _TIMEOUT_S)
            os.close(ended)
        os.kill(self._process.pid, signal.SIGKILL)  # Popen's own call would reap an ended one, and its usage is lost
        _, status, used = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = used.ru_utime + used.ru_stime
        self.stdout.close()

    def _last_words(self) -> str:
        return self._errors.read_text(errors="replace").strip()[-500:] or "it said nothing"


def run(
    programs: Callable[[Path], Sequence[Program]],
    given: Mapping[str, str],
    expected: Expected,
    *,
    reads_values: bool = True,
) -> Run:
    """Let a reader's ``programs`` (of an empty folder) read what the environment ``given`` says.

    Raises :class:`~benchmarks.cases.BenchmarkError` when it did not read every row, or not every value.
    """
    with scratch() as folder, ExitStack() as stack:
        environment = {**os.environ, **given}
        processes: list[_Process] = []
        for number, program in enumerate(programs(folder)):
            before = processes[-1] if processes else None
            stdin = before.stdout if before is not None and before.program.piped else None
            process = _Process(program, environment, stdin, folder / f"errors-{number}")
            stack.callback(process.end, kill=True)
            processes.append(process)
            if program.ready:
                process.line()
        (telling,) = (process for process in processes if process.program.outcome)
        outcome = Outcome.parse(telling.line())
        peak_mib = sum((process.peak_mib() for process in processes if process is not telling), outcome.peak_mib)
        telling.end(kill=False)
        for process in processes:
            process.end(kill=True)
        outcome.check(expected, reads_values=reads_values)
        return Run(outcome.rows, outcome.seconds, sum(process.cpu_s for process in processes), peak_mib)
