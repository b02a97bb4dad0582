"""``wormholectl up --detach`` and ``down``: they start and stop :mod:`wormholectl.run.up` in the background."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from monitor import log_files
from monitor.processes import find
from wormhole.coordination.up_data_folder import up_folder
from wormhole.host.private_files import keep_private
from wormhole.host.ready_file import process_started
from wormhole.model.errors import Fatal, Retryable, UsageError, WormholeError
from wormhole.model.json_input import read_json
from wormhole.model.problem import Problem
from wormholectl.exit_codes import BROKEN, UNREACHABLE, WRONG
from wormholectl.show.printer import print_text

__all__ = ["detached", "down"]

# Seconds that `down` waits in addition to the publishers' own timeout, for ZooKeeper's end or a loaded machine.
_SPARE_S: Final = 15.0
_KINDS: Final[dict[int, type[WormholeError]]] = {BROKEN: Fatal, WRONG: UsageError, UNREACHABLE: Retryable}


def detached(file: Path, data: Path | None) -> None:
    """Start ``up`` in the background, and return when all its processes are ready.

    Raises the :class:`~wormhole.model.errors.WormholeError` with which ``up`` ended. Raises
    :class:`~wormhole.model.errors.Fatal` if a process is not ready. In that case ``up`` keeps trying in the background.
    """
    folder = up_folder(file, data)
    output = folder / "up.log"
    keep_private()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = output.open("ab")
    except OSError as error:
        raise UsageError(
            f"{output} cannot be written: {error.strerror}", hint="name a folder with --data", code="file-unwritable"
        ) from error
    reading, writing = os.pipe()
    with log, os.fdopen(reading) as reports:
        child = subprocess.Popen(
            _command(file, folder, writing),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(writing,),
        )
        os.close(writing)
        if sys.stderr.isatty():
            print_text(f"starting, which may take a minute; its log is {output}", error=True)
        try:
            report = next((json.loads(line) for line in reports), None)
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            raise
    child.returncode = 0  # marks the child as ended for `Popen`, because it outlives this process
    if report is None:
        raise Fatal(
            f"it ended before it was ready: {log_files.last_error(output)}", hint=f"see {output}", code="needs-operator"
        )
    if "failed" in report:
        problem = Problem(report["failed"], report["hint"] or "", report["code"])
        raise _KINDS[report["exit_code"]](problem.text, hint=problem.hint or None, code=problem.code)
    print_text(*report["text"].splitlines())
    if not report["ready"]:
        raise Fatal("\n".join(report["waiting"]), hint=report["undo"] or _next_step(report["given_up"], file, output))


def _next_step(given_up: bool, file: Path, output: Path) -> str:
    if given_up:
        return f"correct that, then `wormholectl down -f {file}` and `up` again; see {output}"
    return f"it keeps trying in the background; see {output}"


def _command(file: Path, folder: Path, report_to: int) -> list[str]:
    program = [sys.executable, "-P", "-m", "wormholectl", "up"]
    return [*program, "-f", str(file.absolute()), "--data", str(folder), "--report-to", str(report_to)]


def down(file: Path, data: Path | None) -> None:
    """Stop the processes of ``up``, and publishers that a killed ``up`` left running.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    folder = up_folder(file, data)
    try:
        record = read_json((folder / "up.json").read_text(encoding="utf-8"))
        pid, started, monitor, timeout = (
            record["pid"],
            record["started"],
            Path(record["monitor"]),
            float(record["stop_timeout"]),
        )
    except FileNotFoundError:
        if not file.exists() and not folder.exists():
            raise UsageError(f"{file}: there is no such file", hint="give the one that `up` was given") from None
        print_text(f"nothing runs for {file}: there is no {folder / 'up.json'}")
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{folder / 'up.json'} cannot be read: {error}", hint="name the data folder with --data"
        ) from error
    was_running = _end(pid, started, timeout + _SPARE_S, kill=False)
    left = find(monitor / "running") if not was_running else []
    for one in left:
        _end(one.pid, one.started, timeout, kill=True)
    (folder / "up.json").unlink(missing_ok=True)
    if left:
        count = "1 publisher" if len(left) == 1 else f"{len(left)} publishers"
        print_text(f"stopped {count} left by an `up` that was killed")
    else:
        print_text(f"stopped {file}" if was_running else f"nothing runs for {file}")


def _end(pid: int, started: int, timeout: float, *, kill: bool) -> bool:
    """Ask a process to end, and wait for its end. Returns whether it was running."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if process_started(pid) != started:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not _ended(handle, timeout):
            if not kill:
                raise Fatal(f"process {pid} has not ended after {timeout:.0f} s", hint="wait, or look into its log")
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            _ended(handle, timeout)
        return True
    finally:
        os.close(handle)


def _ended(handle: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(timeout * 1000))
