"""Virtual time: one list of events, and processes with clocks of their own that live in it.

Everything happens in one thread at a time and in an order that a seed decides: event loops (:mod:`.loop`) and threads
(:mod:`.threads`) of the processes only run while an event of the :class:`World` runs.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Final

from wormhole.host.clock import Clock

__all__ = ["FIRST_WALL_S", "Process", "World"]

FIRST_WALL_S: Final = 1_700_000_000.0
"""The wall time at which a schedule begins: seconds since 1970."""
_MOST_EVENTS: Final = 400_000
"""More in one schedule, and something runs in circles."""


class World:
    """``now``: seconds since the schedule began. ``chance``: what decides about faults and delays. ``process``: the one
    whose code runs. ``violations``: what should never have happened, in the order in which it did.
    """

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.seed = seed
        self.now = 0.0
        self.chance = Random(seed)
        self.process: Process | None = None
        self.violations: list[str] = []
        self.lines: list[str] = []
        self.traced = traced
        self.over = False
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = count()
        self.task_numbers = count()

    def at(self, when: float, call: Callable[..., object], *arguments: Any) -> None:
        """Call at ``when``, or next if that is past."""
        heappush(self._heap, (max(when, self.now), next(self._numbers), call, arguments))

    def after(self, seconds: float, call: Callable[..., object], *arguments: Any) -> None:
        """Call ``seconds`` from now."""
        heappush(self._heap, (self.now + seconds, next(self._numbers), call, arguments))

    def run(self, until: float) -> None:
        """Let everything happen up to ``until``, or until the schedule is over."""
        heap, events = self._heap, 0
        while heap and heap[0][0] <= until and not self.over:
            self.now, _, call, arguments = heappop(heap)
            call(*arguments)
            events += 1
            if events > _MOST_EVENTS:
                self.violation("the schedule runs in circles")
        self.now = max(self.now, until) if not self.over else self.now

    def violation(self, text: str) -> None:
        """Something happened that never should: the schedule ends."""
        self.trace(f"VIOLATION {text}")
        self.violations.append(f"{self.now:.3f} {text}")
        self.over = True

    def trace(self, text: str) -> None:
        """Note what happens."""
        if self.traced:
            self.lines.append(f"{self.now:9.4f} {text}")


class Process:
    """A process on a host. ``rate``: how fast its clock runs. It does nothing before ``paused_until``, and nothing any
    more once it is ``dead``.

    ``zk``: its sessions with ZooKeeper, which notice when it is paused, resumed or killed.
    """

    def __init__(self, world: World, name: str, host: str, pid: int, rate: float) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.pid = pid
        self.rate = rate
        self.dead = False
        self.paused_until = 0.0
        self.last_pause = (-1.0, -1.0)
        """When it was paused last, and until when."""
        self.noticing: list[Any] = []
        self.loop: Any = None
        """Its event loop; it runs at the end of each delivery."""
        self.delivering = False
        self._offset = world.chance.uniform(100.0, 10_000.0)

    def __repr__(self) -> str:
        return f"<Process {self.name}>"

    def monotonic(self) -> float:
        """What its clock shows."""
        return self._offset + self.rate * self.world.now

    def wall(self) -> float:
        """Seconds since 1970."""
        return FIRST_WALL_S + self.world.now

    def when(self, local: float) -> float:
        """When its clock shows ``local``."""
        return (local - self._offset) / self.rate

    def clock(self, sleep: Callable[[float], Any], pause: Callable[[float], None]) -> Clock:
        """Its clock, as the product takes it."""
        return Clock(self.monotonic, self.wall, sleep, pause, lambda: 0.0)

    @property
    def paused(self) -> bool:
        """Whether it is stopped just now."""
        return self.paused_until > self.world.now

    def deliver(self, when: float, call: Callable[..., object], *arguments: Any) -> None:
        """Call in the process at ``when``, or when it goes on after a pause; never once it is dead."""
        self.world.at(when, self._deliver, call, arguments)

    def _deliver(self, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        world = self.world
        if self.dead:
            return
        if self.paused_until > world.now:
            world.at(self.paused_until, self._deliver, call, arguments)
            return
        before, world.process = world.process, self
        self.delivering = True
        try:
            call(*arguments)
        finally:
            self.delivering = False
            world.process = before
        if self.loop is not None:
            self.loop.go_on()

    def pause(self, seconds: float) -> None:
        """Stop it, as SIGSTOP does; what arrives meanwhile arrives when it goes on."""
        if self.dead or self.paused:
            return
        world = self.world
        world.trace(f"{self.name} is paused for {seconds:.2f} s")
        self.paused_until = world.now + seconds
        self.last_pause = (world.now, self.paused_until)
        for one in self.noticing:
            one.paused()
        world.at(self.paused_until, self._resumed)

    def _resumed(self) -> None:
        if not self.dead and not self.paused:
            self.world.trace(f"{self.name} goes on")
            for one in self.noticing:
                one.resumed()

    def kill(self) -> None:
        """End it, as SIGKILL does."""
        if self.dead:
            return
        self.world.trace(f"{self.name} is killed")
        self.dead = True
        for one in tuple(self.noticing):
            one.killed()
