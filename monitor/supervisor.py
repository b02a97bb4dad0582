"""Executes the plan: starts, adopts, stops and reaps publishers and sinks. Their phases go to the host's state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from monitor import log_files
from monitor.desired_logs import DesiredLog
from monitor.desired_sinks import DesiredSink
from monitor.plan import (
    Act,
    LiveRun,
    PlannedStep,
    Policy,
    PublisherSlot,
    after_asked,
    after_end,
    after_no_start,
    after_start,
    phase_of,
    plan,
)
from monitor.processes import FoundProcess, Process, adopt, command, find, run_file, sink_command, start
from monitor.state import (
    HostState,
    LogKey,
    Phase,
    ProcessKey,
    ProcessState,
    PublisherState,
    SinkKey,
    SinkState,
)
from wormhole.config import Config, load, to_json_file
from wormhole.coordination.change_signal import Signal
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.ready_file import read_ready, ready_path
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import WormholeError

__all__ = ["Supervisor"]

_log = logging.getLogger(__name__)

# A publisher that is not ready within a second waits for a dependency. Then one check per second is enough.
_SOON_S: Final = 0.05
_LATER_S: Final = 1.0
_SOON_FOR_S: Final = 10.0
_LOGS_EVERY_S: Final = 10.0
_NO_SINKS: Final[Mapping[SinkKey, DesiredSink]] = MappingProxyType({})


@dataclass(slots=True)
class _Live:
    """A process with its configuration file, its ready file, and the task that waits for its end."""

    process: Process
    file: Path
    ready: Path | None
    waiting: asyncio.Task[None] | None = None


class Supervisor:
    """The publishers and sinks of one host. ``folder``: ``[monitor] state_dir``, which only one monitor uses at a time.

    ``environment``: the environment of started processes. Call :meth:`adopt` first, then :meth:`run`, and at the end
    :meth:`stop` or :meth:`leave`.
    """

    def __init__(
        self,
        state: HostState,
        folder: Path,
        policy: Policy,
        environment: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._state = state
        self._running, self._logs = folder / "running", folder / "logs"
        self._policy = policy
        self._environment = dict(os.environ if environment is None else environment)
        self._clock = clock
        self._desired: Mapping[ProcessKey, DesiredLog | DesiredSink] | None = None
        self._drained = False
        self._may_start = self._ending = False
        self._slots: dict[ProcessKey, PublisherSlot] = {}
        self._live: dict[ProcessKey, _Live] = {}
        self._restarts: dict[ProcessKey, int] = {}
        self._problems: dict[ProcessKey, str] = {}
        self._wake = Signal()

    def set_desired(
        self, logs: Mapping[LogKey, DesiredLog], sinks: Mapping[SinkKey, DesiredSink] = _NO_SINKS, *, drained: bool
    ) -> None:
        """Set the logs and sinks to run. While the host is ``drained``, and after :meth:`stop`, none runs."""
        desired: dict[ProcessKey, DesiredLog | DesiredSink] = {}
        if not self._ending:
            desired.update(logs.items())
            desired.update(sinks.items())
        self._desired, self._drained = desired, drained
        self._publish()  # at once: a reader that sees the configuration must see its publishers
        self._wake.notify()

    def may_start(self, allowed: bool) -> None:
        """Set whether processes may be started, because no other monitor can act for this host."""
        self._may_start = allowed
        self._wake.notify()

    def set_policy(self, policy: Policy) -> None:
        """Use another policy from now on."""
        self._policy = policy
        self._wake.notify()

    def try_again(self) -> None:
        """Start immediately every publisher that waits for a restart or was given up."""
        self._slots = {key: after_asked(slot) for key, slot in self._slots.items()}
        self._wake.notify()

    async def adopt(self) -> None:
        """Take over publishers that an earlier monitor left running.

        Raises :class:`~wormhole.model.errors.WormholeError`.
        """
        try:
            for found in await asyncio.to_thread(self._find):
                file = run_file(self._running, found.key, found.digest)
                process = None if found.key in self._live else await asyncio.to_thread(adopt, found)
                if process is None:
                    continue
                ready = await asyncio.to_thread(_ready_of, file, found.key)
                run = LiveRun(process.pid, found.digest, self._clock.monotonic())
                self._slots[found.key] = PublisherSlot(run)
                self._keep(found.key, _Live(process, file, ready))
                self._report("adopted", found.key, f"process {process.pid} keeps running")
        except OSError as error:
            raise WormholeError(
                f"{self._running} cannot be used: {error.strerror}",
                hint="the monitor's user needs write access to its state_dir",
                code="file-unwritable",
            ) from error
        await self._check_ready()
        self._publish()

    async def run(self) -> None:
        """Keep the desired logs running, until cancelled; the processes then stay as they are."""
        while True:
            await self._step()

    async def stop(self) -> None:
        """Stop every publisher and wait for its end. If this call is cancelled, it kills them and still waits."""
        self._ending = True
        self.set_desired({}, drained=self._drained)
        try:
            while self._live:
                await self._step()
        except asyncio.CancelledError:
            for live in self._live.values():
                live.process.signal(signal.SIGKILL)
            await asyncio.gather(*(live.waiting for live in self._live.values() if live.waiting is not None))
            raise
        self._publish()

    async def leave(self) -> None:
        """Leave the processes running: the next monitor adopts them."""
        waiting = [live.waiting for live in self._live.values() if live.waiting is not None]
        self._live.clear()
        await cancel_all(*waiting)

    async def read_addresses(self, key: LogKey) -> None:
        """Read the addresses of a publisher again, because it does not answer.

        A publisher that gave up its log listens at new addresses, with the same process.
        """
        live = self._live.get(key)
        found = None if live is None or live.ready is None else await asyncio.to_thread(read_ready, live.ready)
        entry = self._state.publishers.get(key)
        if found is not None and entry is not None and entry.pid == found.pid:
            entry.admin, entry.http = found.admin, found.http

    async def keep_logs_small(self) -> None:
        """Limit the size of publishers' output files, until cancelled."""
        while True:
            for key in list(self._slots):
                path = log_files.log_file(self._logs, str(key))
                try:
                    await asyncio.to_thread(log_files.rotate, path)
                except OSError as error:
                    _log.error("%s could not be copied and was emptied: %s", path, error.strerror)
            await asyncio.sleep(_LOGS_EVERY_S)

    async def _step(self) -> None:
        seen = self._wake.version
        next_in = _LATER_S
        if self._desired is not None:
            desired = {} if self._drained else {key: one.digest for key, one in self._desired.items()}
            now = self._clock.monotonic()
            found = plan(desired, self._slots, now, self._policy, may_start=self._may_start)
            for step in found.steps:
                await self._carry_out(step)
            # A step may make another step necessary, so plan again immediately.
            next_in = 0.0 if found.steps else found.next_at - now
        await self._check_ready()
        self._publish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(next_in, self._until_ready_check()))):
                await self._wake.wait(seen)

    def _until_ready_check(self) -> float:
        """Seconds until the next check of ready files."""
        began = [slot.run.began for slot in self._slots.values() if slot.run is not None and not slot.run.ready]
        if not began:
            return float("inf")
        return _SOON_S if self._clock.monotonic() - max(began) < _SOON_FOR_S else _LATER_S

    async def _carry_out(self, step: PlannedStep[ProcessKey]) -> None:
        if step.act is Act.START:
            await self._start(step)
            return
        live, slot = self._live[step.key], self._slots[step.key]
        assert slot.run is not None
        if step.act is Act.STOP:
            self._slots[step.key] = replace(slot, run=replace(slot.run, stop_asked=self._clock.monotonic()))
            self._report(
                "stop",
                step.key,
                f"process {slot.run.pid} is asked to end: {'the monitor stops' if self._ending else step.why}",
            )
            live.process.signal(signal.SIGTERM)
        else:
            self._slots[step.key] = replace(slot, run=replace(slot.run, killed=True))
            self._report("stop", step.key, f"process {slot.run.pid} is killed: {step.why}", logging.ERROR)
            live.process.signal(signal.SIGKILL)

    async def _start(self, step: PlannedStep[ProcessKey]) -> None:
        assert self._desired is not None
        key, desired = step.key, self._desired[step.key]
        slot = self._slots.get(key, PublisherSlot())
        file, output = run_file(self._running, key, desired.digest), log_files.log_file(self._logs, str(key))
        try:
            await asyncio.to_thread(self._prepare, desired, file, output)
            # A thread is not used here. If it were cancelled midway, the started process would not be supervised.
            process = start(_command(desired, file, key), output, self._environment)
        except OSError as error:
            self._slots[key] = after_no_start(slot, desired.digest, self._clock.monotonic(), self._policy)
            self._problem(
                key, f"it cannot be started: {error.filename or file}: {error.strerror}. Next: free space on that disk"
            )
            return
        self._slots[key] = after_start(slot, process.pid, desired.digest, self._clock.monotonic())
        ready = _ready(desired.config, key) if isinstance(desired, DesiredLog) else file
        self._keep(key, _Live(process, file, ready))
        again = slot.failures > 0
        self._restarts[key] = self._restarts.get(key, 0) + again
        self._report("restart" if again else "start", key, f"process {process.pid} started, {step.why}")

    def _prepare(self, desired: DesiredLog | DesiredSink, file: Path, output: Path) -> None:
        output.parent.mkdir(parents=True, exist_ok=True)
        log_files.rotate(output)
        if isinstance(desired, DesiredLog):
            to_json_file(desired.config, file)

    def _find(self) -> list[FoundProcess]:
        self._running.mkdir(parents=True, exist_ok=True)
        found = find(self._running)
        of_processes = {run_file(self._running, one.key, one.digest) for one in found}
        for file in set(self._running.iterdir()) - of_processes:
            file.unlink()
        return found

    def _keep(self, key: ProcessKey, live: _Live) -> None:
        self._live[key] = live
        live.waiting = asyncio.create_task(self._await_end(key, live), name=f"end of {key}")

    async def _await_end(self, key: ProcessKey, live: _Live) -> None:
        status = await live.process.wait()
        last_error = await asyncio.to_thread(self._clean_up, key, live)
        del self._live[key]
        before = self._slots[key]
        self._slots[key] = after_end(before, status, self._clock.monotonic(), self._policy)
        assert before.run is not None
        if before.run.stop_asked is not None:
            self._problems.pop(key, None)
            self._report("stop", key, f"process {before.run.pid} ended")
        else:
            how = f"process {before.run.pid} {_how(status)}{f': {last_error}' if last_error else ''}"
            self._problem(key, how)
        self._wake.notify()

    def _clean_up(self, key: ProcessKey, live: _Live) -> str:
        try:
            live.file.unlink(missing_ok=True)
        except OSError as error:  # the next monitor tries again; this end is handled anyway
            _log.warning("%s cannot be removed: %s", live.file, error.strerror)
        return log_files.last_error(log_files.log_file(self._logs, str(key)))

    def _problem(self, key: ProcessKey, text: str) -> None:
        slot = self._slots[key]
        if slot.given_up:
            many = len(slot.crashes) >= self._policy.crashes
            why = (
                f"it ended {len(slot.crashes)} times within {self._policy.within:g} s"
                if many
                else "its request is wrong"
            )
            text = f"given up, {why}: {text}"
            self._report("crash_loop", key, text, logging.ERROR)
        else:
            wait = max(0.0, slot.start_at - self._clock.monotonic())
            self._report("restart", key, f"{text}; restarted in {wait:.1f} s", logging.WARNING)
        self._problems[key] = text

    def _report(self, kind: str, key: ProcessKey, text: str, level: int = logging.INFO) -> None:
        _log.log(level, "%s: %s", key, text)
        self._state.report(kind, text, str(key))

    async def _check_ready(self) -> None:
        for key, live in list(self._live.items()):
            run = self._slots[key].run
            if run is None or run.ready or live.ready is None:
                continue
            found = await asyncio.to_thread(read_ready, live.ready)
            slot = self._slots[key]
            if found is None or slot.run is None or found.pid != slot.run.pid:
                continue
            self._slots[key] = replace(slot, run=replace(slot.run, ready=True, again=False))
            self._problems.pop(key, None)
            self._publish()
            entry = self._entry(key)
            assert entry is not None
            entry.admin, entry.http = found.admin, found.http

    def _publish(self) -> None:
        """Bring the host's state up to date."""
        changed = False
        desired = self._desired or {}
        for key in sorted({*desired, *self._slots}, key=str):
            slot, one = self._slots.get(key, PublisherSlot()), desired.get(key)
            phase = phase_of(slot, None if one is None else one.digest, drained=self._drained)
            if phase is None:
                changed |= self._drop(key)
                self._slots.pop(key, None)
                self._problems.pop(key, None)
                continue
            pid = None if slot.run is None else slot.run.pid
            entry = self._entry(key)
            if entry is None or entry.phase is not phase or entry.pid != pid:
                changed = True
                entry = entry or self._added(key, phase)
                entry.since, entry.problem = self._state.clock.wall(), ""
            if entry.pid != pid:
                entry.forget_process()
            if isinstance(entry, SinkState) and isinstance(one, DesiredSink):
                entry.url, entry.application = one.url, one.application
            entry.phase, entry.pid, entry.restarts = phase, pid, self._restarts.get(key, 0)
            if phase is not Phase.RUNNING:  # the status poller sets the problem of a running process
                entry.problem = self._problems.get(key, "")
        known: list[ProcessKey] = [*self._state.publishers, *self._state.sinks]
        for key in set(known) - {*desired, *self._slots}:
            changed |= self._drop(key)
        if self._state.drained != self._drained:
            self._state.drained, changed = self._drained, True
        if changed:
            self._state.changed()

    def _entry(self, key: ProcessKey) -> ProcessState | None:
        return self._state.sinks.get(key) if isinstance(key, SinkKey) else self._state.publishers.get(key)

    def _added(self, key: ProcessKey, phase: Phase) -> ProcessState:
        if isinstance(key, SinkKey):
            return self._state.sinks.setdefault(key, SinkState(key, phase))
        return self._state.publishers.setdefault(key, PublisherState(key, phase))

    def _drop(self, key: ProcessKey) -> bool:
        """Remove the entry of ``key`` from the host's state. Returns whether it existed."""
        if isinstance(key, SinkKey):
            return self._state.sinks.pop(key, None) is not None
        return self._state.publishers.pop(key, None) is not None


def _command(desired: DesiredLog | DesiredSink, file: Path, key: ProcessKey) -> list[str]:
    if isinstance(key, SinkKey):
        assert isinstance(desired, DesiredSink)
        return sink_command(file, key, desired.config, desired.coordinator)
    return command(file, key)


def _ready(config: Config, key: ProcessKey) -> Path:
    assert isinstance(key, LogKey)
    return ready_path(config.publisher.state_dir, key.dataset, key.copy, key.log)


def _ready_of(file: Path, key: ProcessKey) -> Path | None:
    """The ready file of a process that another monitor started."""
    try:
        return file if isinstance(key, SinkKey) else _ready(load(file), key)
    except WormholeError:
        return None


def _how(status: int | None) -> str:
    if status is None:
        return "ended"
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has a number and no name
        return f"was killed by signal {-status}"
