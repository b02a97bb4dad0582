"""Plans the next steps for each publisher and each sink. Pure: the desired digests, the slots and the time are
arguments.

The life of a slot, which is the place of one publisher or sink::

    nothing --start--> starting --ready--> running --stop--> stopping --(kill)--> ended --> nothing
                           |                  |
                           +-- ended by itself: wait, twice as long each time, then start again
                           |      status 3 (a dependency is unreachable)    retried without limit
                           |      status 2 before it was ready             given up: the configuration is wrong
                           |      any other status, too often in a time    given up
                           +-- given up: until the configuration changes or an operator asks for a retry

An adopted process is treated like a started one. A new configuration stops the process, and starts another only after
its end. So a log never has two processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Generic, TypeVar

from monitor.state import Phase, ProcessKey

__all__ = [
    "Act",
    "LiveRun",
    "PlannedStep",
    "Policy",
    "PublisherSlot",
    "StepsToTake",
    "after_asked",
    "after_end",
    "after_no_start",
    "after_start",
    "phase_of",
    "plan",
]

_K = TypeVar("_K", bound=ProcessKey)

# Exit codes of `wormholectl`.
_WRONG: Final = 2
_UNREACHABLE: Final = 3
_MOST_DOUBLINGS: Final = 20


@dataclass(frozen=True, slots=True)
class Policy:
    """The restart policy; times in seconds. A crash loop is ``crashes`` unexpected ends ``within`` a time."""

    first_wait: float = 0.5
    longest_wait: float = 30.0
    crashes: int = 5
    within: float = 60.0
    stop_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A live process: its configuration, when it began, whether it serves, and when it was asked to end.

    ``again``: whether an operator asked for a retry before the process served. The process may still fail for a reason
    that the operator has corrected, so it is then started again.
    """

    pid: int
    digest: str
    began: float
    ready: bool = False
    stop_asked: float | None = None
    killed: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class PublisherSlot:
    """The state of one publisher or sink. ``failed``: the digest of the configuration with which it failed.

    ``failures``: the number of consecutive unexpected ends; ``crashes``: the times of ends that count for a crash loop.
    """

    run: LiveRun | None = None
    failed: str = ""
    failures: int = 0
    crashes: tuple[float, ...] = ()
    start_at: float = 0.0
    given_up: bool = False


class Act(Enum):
    """An action on a publisher."""

    START = "start"
    STOP = "stop"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class PlannedStep(Generic[_K]):
    """One action to take now, and its reason."""

    act: Act
    key: _K
    why: str


@dataclass(frozen=True, slots=True)
class StepsToTake(Generic[_K]):
    """Steps to take now, and the time at which to plan again without an event (infinity: never)."""

    steps: tuple[PlannedStep[_K], ...]
    next_at: float


def plan(
    desired: Mapping[_K, str],
    slots: Mapping[_K, PublisherSlot],
    now: float,
    policy: Policy,
    *,
    may_start: bool = True,
) -> StepsToTake[_K]:
    """The next steps. ``desired``: the digest of each desired configuration.

    ``may_start``: false while another monitor may act for this host.
    """
    steps: list[PlannedStep[_K]] = []
    next_at = math.inf
    for key in sorted({*desired, *slots}, key=str):
        slot, digest = slots.get(key, PublisherSlot()), desired.get(key)
        run = slot.run
        if run is None:
            if digest is None or not may_start:
                continue
            if slot.failed != digest:
                steps.append(PlannedStep(Act.START, key, "configured for this host"))
            elif slot.given_up:
                continue
            elif now >= slot.start_at:
                steps.append(PlannedStep(Act.START, key, "after its end"))
            else:
                next_at = min(next_at, slot.start_at)
        elif run.stop_asked is None:
            if digest is None:
                steps.append(PlannedStep(Act.STOP, key, "no longer configured for this host"))
            elif digest != run.digest:
                steps.append(PlannedStep(Act.STOP, key, "for another configuration"))
        elif not run.killed:
            deadline = run.stop_asked + policy.stop_timeout
            if now >= deadline:
                steps.append(PlannedStep(Act.KILL, key, f"it did not end within {policy.stop_timeout:g} s"))
            else:
                next_at = min(next_at, deadline)
    return StepsToTake(tuple(steps), next_at)


def after_start(slot: PublisherSlot, pid: int, digest: str, now: float) -> PublisherSlot:
    """The slot after its process was started."""
    before = slot if slot.failed == digest else PublisherSlot()
    return replace(before, run=LiveRun(pid, digest, now), given_up=False)


def after_end(slot: PublisherSlot, status: int | None, now: float, policy: Policy) -> PublisherSlot:
    """The slot after its process ended. ``status``: negative for a signal; ``None`` for an adopted process."""
    run = slot.run
    assert run is not None
    if run.stop_asked is not None or run.again:
        return PublisherSlot()
    lasted = now - run.began >= policy.within
    waiting = _waiting(PublisherSlot() if lasted else slot, run.digest, now, policy)
    if status == _UNREACHABLE:
        return waiting
    crashes = (*(at for at in waiting.crashes if now - at < policy.within), now)
    given_up = len(crashes) >= policy.crashes or (status == _WRONG and not run.ready)
    return replace(waiting, crashes=crashes, given_up=given_up)


def after_asked(slot: PublisherSlot) -> PublisherSlot:
    """The slot after an operator asked for a retry. A publisher that waits or was given up starts immediately. A
    publisher that is still starting gets another attempt if it fails.
    """
    run = slot.run
    if run is None:
        return PublisherSlot()
    return slot if run.ready else replace(slot, run=replace(run, again=True))


def after_no_start(slot: PublisherSlot, digest: str, now: float, policy: Policy) -> PublisherSlot:
    """The slot after a start that made no process, as on a full disk. Such starts are retried without limit."""
    return _waiting(slot if slot.failed == digest else PublisherSlot(), digest, now, policy)


def _waiting(slot: PublisherSlot, digest: str, now: float, policy: Policy) -> PublisherSlot:
    wait = min(policy.longest_wait, policy.first_wait * 2 ** min(slot.failures, _MOST_DOUBLINGS))
    return PublisherSlot(None, digest, slot.failures + 1, slot.crashes, now + wait)


def phase_of(slot: PublisherSlot, digest: str | None, *, drained: bool) -> Phase | None:
    """The phase of the slot; ``None`` if it is neither desired nor running.

    ``digest``: the digest of the desired configuration, also while the host is drained.
    """
    run = slot.run
    if run is not None:
        if run.stop_asked is not None:
            return Phase.STOPPING
        return Phase.RUNNING if run.ready else Phase.STARTING
    if digest is None:
        return None
    if drained:
        return Phase.DRAINED
    if slot.failed != digest:
        return Phase.STARTING
    return Phase.GIVEN_UP if slot.given_up else Phase.BACKING_OFF
