"""Apply one fault at a time to a scratch copy of the tree, and see that the tests named for it go red.

A fault that leaves its tests green means that a promise is not tested. So does a fault that no longer applies: the
text it replaces must stand in its file exactly once. Nothing is ever changed in the checkout, and nothing is built:
the copy runs interpreted.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import scratch

# What pytest exits with: 1 = tests failed; 2 = interrupted, also by an error in collection; 5 = nothing selected.
GREEN, RED = 0, 1
TIMEOUT = 180.0  # seconds for one selection
PATIENCE = "20"  # seconds that a test waits: a fault may well make it wait for what never comes
KILLED = 124
_FAILED = re.compile(r"(FAILED|ERROR) \S")  # a record of the log has more spaces after ERROR


@dataclass(frozen=True)
class Fault:
    """One small fault.

    ``file`` is relative to the tree; ``old`` stands in it exactly once and becomes ``new``. ``tests`` is what pytest
    is given; at least one of those tests must fail with the fault, and all must pass without it. ``promise`` says in
    a few words what a user would lose.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    promise: str


@dataclass(frozen=True)
class Result:
    """What became of one fault: ``caught`` when its tests went red."""

    fault: Fault
    caught: bool
    what: str
    seconds: float


class FaultError(Exception):
    """The list of faults itself is wrong: a text that is not there, or is there twice, or a name given twice.

    ``status``: of pytest, where the tests are not green without a fault.
    """

    status = 0


def applied(fault: Fault, text: str) -> str:
    """``text`` with the fault in it; raises `FaultError` when it does not apply exactly once."""
    count = text.count(fault.old)
    if count != 1:
        raise FaultError(f"{fault.name}: the text to replace stands {count} times in {fault.file}; it must stand once")
    if fault.old == fault.new:
        raise FaultError(f"{fault.name}: changes nothing")
    return text.replace(fault.old, fault.new)


def check_faults(faults: Iterable[Fault], root: Path) -> None:
    """Raises `FaultError`, naming every fault that no longer fits the tree at ``root``."""
    problems: list[str] = []
    seen: set[str] = set()
    for fault in faults:
        if fault.name in seen:
            problems.append(f"{fault.name}: two faults have this name")
        seen.add(fault.name)
        if not fault.tests:
            problems.append(f"{fault.name}: names no tests")
        problems += [
            f"{fault.name}: no such tests: {selected}"
            for selected in fault.tests
            if not selected.startswith("-") and not _exists(root, selected)
        ]
        try:
            applied(fault, (root / fault.file).read_text())
        except OSError as error:
            problems.append(f"{fault.name}: {error}")
        except FaultError as error:
            problems.append(str(error))
    if problems:
        raise FaultError("\n".join(problems))


def _exists(root: Path, selected: str) -> bool:
    """Whether a file or folder has the tests that pytest is given: the names of classes and functions stand in the
    text."""
    path, *names = selected.partition("[")[0].split("::")
    if not (root / path).exists():
        return False
    text = (root / path).read_text() if names else ""
    return all(f"def {name}(" in text or f"class {name}" in text for name in names)


Runner = Callable[[Path, Sequence[str]], tuple[int, str]]


def run_pytest(copy: Path, selection: Sequence[str], *, timeout: float = 0.0) -> tuple[int, str]:
    """Run the tests in ``copy``, within ``timeout`` seconds or :data:`TIMEOUT` for each selection."""
    settings = {"WORMHOLE_TEST_PATIENCE": PATIENCE}
    arguments = ["-q", "-x", "--no-header", *selection]
    return scratch.run_tests(
        copy, arguments, timeout=timeout or TIMEOUT * len(selection), quiet=True, settings=settings
    )


def run_all(
    faults: Sequence[Fault], copy: Path, *, run: Runner = run_pytest, say: Callable[[str], None] = print
) -> list[Result]:
    """First the named tests without any fault, which must be green; then once per fault.

    ``copy`` is a scratch copy of the tree. Raises `FaultError` when a fault does not fit or the tests are red before.
    """
    check_faults(faults, copy)
    selections = sorted({selected for fault in faults for selected in fault.tests})
    status, output = run(copy, selections)
    if status != GREEN:
        error = FaultError(f"the tests are not green without any fault (pytest exit {status}):\n{_end_of(output)}")
        error.status = status
        raise error
    say(f"without a fault: green ({len(selections)} selections)")
    results: list[Result] = []
    for number, fault in enumerate(faults):
        started = time.monotonic()
        path = copy / fault.file
        sound, written_ns = path.read_text(), path.stat().st_mtime_ns
        path.write_text(applied(fault, sound))
        # Python takes byte code for a source's by the second and the size: each fault has a second of its own.
        os.utime(path, (number, number))
        try:
            status, output = run(copy, fault.tests)
        finally:
            path.write_text(sound)
            os.utime(path, ns=(written_ns, written_ns))
        result = Result(fault, *_judge(status, output), time.monotonic() - started)
        results.append(result)
        say(f"{'caught' if result.caught else 'MISSED'}  {fault.name}: {result.what}  ({result.seconds:.1f} s)")
    return results


def _judge(status: int, output: str) -> tuple[bool, str]:
    if status == GREEN:
        return False, "its tests stay green"
    failed = [line for line in output.splitlines() if _FAILED.match(line)]
    if status == RED and failed:
        # A fault that breaks collection has proved nothing about a promise.
        return True, failed[0].partition(" - ")[0]
    if status == KILLED:
        return True, "no end in time"
    return False, f"pytest exit {status}, no test failed:\n{_end_of(output)}"


def _end_of(output: str) -> str:
    return "\n".join(output.splitlines()[-25:])


def table(results: Sequence[Result]) -> str:
    """One line per fault: caught or missed, its name, the promise it breaks."""
    width = max((len(result.fault.name) for result in results), default=0)
    return "\n".join(
        f"{'caught' if result.caught else 'MISSED'}  {result.fault.name:<{width}}  {result.fault.promise}"
        for result in results
    )
