"""Faults of the monitor: each breaks one promise of docs/monitor.md."""

from __future__ import annotations

from tests.mutants.runner import Fault

MONITOR_FAULTS: list[Fault] = [
    Fault(
        name="crash-loop-without-end",
        file="monitor/plan.py",
        old="    given_up = len(crashes) >= policy.crashes or (status == _WRONG and not run.ready)",
        new="    given_up = status == _WRONG and not run.ready",
        tests=("tests/unit/monitor/test_plan.py",),
        promise="a publisher that ends too often is given up",
    ),
    Fault(
        name="second-process-before-the-first-ended",
        file="monitor/plan.py",
        old="            elif digest != run.digest:\n                steps.append(PlannedStep(Act.STOP, key,",
        new="            elif digest != run.digest:\n                steps.append(PlannedStep(Act.START, key,",
        tests=("tests/unit/monitor/test_plan.py",),
        promise="never two processes for one log",
    ),
    Fault(
        name="stranger-adopted",
        file="monitor/processes.py",
        old="    if process_started(found.pid) != found.started:",
        new="    if process_started(found.pid) is None:",
        tests=("tests/unit/monitor/test_processes.py",),
        promise="a process that got a publisher's number later is not taken for it",
    ),
    Fault(
        name="left-and-forgotten",
        file="monitor/supervisor.py",
        old="                self._slots[found.key] = PublisherSlot(run)\n",
        new="                self._slots[found.key] = PublisherSlot()\n",
        tests=("tests/unit/monitor/test_supervisor.py",),
        promise="the next monitor takes over what the one before left running",
    ),
    Fault(
        name="zombies",
        file="monitor/processes.py",
        old="        ended = os.waitid(os.P_PIDFD, handle, os.WEXITED)",
        new="        ended = os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOWAIT)",
        tests=("tests/unit/monitor/test_processes.py",),
        promise="every publisher that ended is reaped",
    ),
    Fault(
        name="empty-zookeeper-obeyed",
        file="monitor/config_follower.py",
        old="            if not datasets and await self._was_emptied():\n                continue\n",
        new="",
        tests=("tests/unit/monitor/test_config_follower.py",),
        promise="a ZooKeeper that lost everything does not stop a host",
    ),
    Fault(
        name="started-before-registered",
        file="monitor/plan.py",
        old="            if digest is None or not may_start:",
        new="            if digest is None:",
        tests=("tests/unit/monitor/test_plan.py",),
        promise="while another monitor may act for the host nothing is started",
    ),
    Fault(
        name="number-of-another-taken-down",
        file="wormholectl/run/background.py",
        old="        if process_started(pid) != started:\n            return False\n",
        new="",
        tests=("tests/unit/wormholectl/run/test_background.py",),
        promise="`down` ends only the processes of its own `up`",
    ),
]
