"""The network between publishers and subscribers: lines that carry messages in order, with delays, until they break.

Heartbeats cost no events: an end counts as heard for as long as the line can carry them and its process runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from tests.simulation.world import Process, World

__all__ = ["End", "Listener", "Network", "Owner"]

_MISSED: Final = 3
"""Heartbeats that do not come before an end hangs up."""


class Owner(Protocol):
    """Has an end of a line."""

    def received(self, end: End, message: tuple[Any, ...]) -> None:
        """The other side sent this."""

    def ended(self, end: End, cause: str) -> None:
        """The line is broken or was closed by the other side."""


class Listener(Protocol):
    """What publishers dial."""

    process: Process

    def accepted(self, end: End, hello: Any) -> Owner:
        """A connection came. Returns the owner of this end from now on."""


class Network:
    """``blocked``: pairs of hosts between which nothing passes. ``slow_s``: the longest delay of a message now."""

    def __init__(self, world: World, heartbeat_s: float) -> None:
        self.world = world
        self.heartbeat_s = heartbeat_s
        self.slow_s = 0.003
        self.blocked: set[tuple[str, str]] = set()
        self.listeners: dict[str, Listener] = {}
        self._ends: dict[End, None] = {}

    def delay(self) -> float:
        """The delay of one message."""
        return 0.0001 + self.world.chance.random() * self.slow_s

    def dial(
        self, process: Process, address: str, hello: Any, done: Callable[[End | None, bool], None], owner: Owner
    ) -> None:
        """Connect to ``address``. ``done`` gets the end, or whether the port is closed."""
        self.world.after(self.delay(), self._arrive, process, address, hello, done, owner)

    def _arrive(
        self, process: Process, address: str, hello: Any, done: Callable[[End | None, bool], None], owner: Owner
    ) -> None:
        world, listener = self.world, self.listeners.get(address)
        host = address.partition(":")[0]
        if (process.host, host) in self.blocked or (listener is not None and listener.process.paused):
            patience = _MISSED * self.heartbeat_s / process.rate
            process.deliver(world.now + patience, done, None, False)
        elif listener is None or listener.process.dead:
            process.deliver(world.now + self.delay(), done, None, True)
        else:
            near, far = End(self, process), End(self, listener.process)
            near.other, far.other = far, near
            near.owner, far.owner = owner, listener.accepted(far, hello)
            for end in (near, far):
                self._ends[end] = None
                end.process.noticing.append(end)
            if process.dead:
                near.killed()
            process.deliver(world.now + self.delay(), done, near, False)

    def block(self, one: str, other: str, *, blocked: bool) -> None:
        """Whether nothing passes between two hosts, from now on."""
        pair = (one, other)
        if blocked == (pair in self.blocked):
            return
        (self.blocked.add if blocked else self.blocked.discard)(pair)
        for end in tuple(self._ends):
            if end.pair == pair:
                if blocked:
                    end.quiet()
                else:
                    end.other.flush()  # a host sends what it was given, whatever its process does
                    if not end.other.process.paused:
                        end.heard()

    def forget(self, end: End) -> None:
        """The end is closed."""
        self._ends.pop(end, None)
        if end in end.process.noticing:
            end.process.noticing.remove(end)


class End:
    """One end of a line."""

    other: End
    owner: Owner

    def __init__(self, network: Network, process: Process) -> None:
        self.process = process
        self.open = True
        self._network = network
        self._last = 0.0
        self._held: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._silences = 0

    @property
    def pair(self) -> tuple[str, str]:
        """The hosts of the publisher and the subscriber."""
        one, other = self.process, self.other.process
        return (one.host, other.host) if one.host.startswith("h") else (other.host, one.host)

    def send(self, *message: Any) -> None:
        """The other end receives this, unless the line breaks."""
        if self.open:
            self._pass(self.other._receive, message)

    def close(self) -> None:
        """Hang up."""
        if self.open:
            self.open = False
            self._network.forget(self)
            self._pass(self.other._closed, "the other side hung up")

    def _pass(self, call: Callable[..., object], *arguments: Any) -> None:
        network = self._network
        if self.pair in network.blocked:
            self._held.append((call, arguments))
            return
        self._last = max(self._last, network.world.now + network.delay())
        self.other.process.deliver(self._last, call, *arguments)

    def flush(self) -> None:
        """Messages pass again."""
        held, self._held = self._held, []
        for call, arguments in held:
            self._pass(call, *arguments)

    def _receive(self, message: tuple[Any, ...]) -> None:
        if self.open:
            self.owner.received(self, message)

    def _closed(self, cause: str) -> None:
        if self.open:
            self.open = False
            self._network.forget(self)
            self.owner.ended(self, cause)

    # -- silence

    def quiet(self) -> None:
        """It hears nothing from now on."""
        if self.open:
            network = self._network
            self._silences += 1
            patience = network.heartbeat_s * (_MISSED - network.world.chance.random())
            when = network.world.now + patience / self.process.rate
            self.process.deliver(when, self._silent, self._silences)

    def heard(self) -> None:
        """It hears the other side again."""
        self._silences += 1

    def _silent(self, silences: int) -> None:
        if self.open and silences == self._silences:
            self.close()
            self.owner.ended(self, "nothing was heard for three heartbeats")

    def paused(self) -> None:
        """Its process stops."""
        self.other.quiet()

    def resumed(self) -> None:
        """Its process goes on."""
        if self.pair not in self._network.blocked:
            self.other.heard()

    def killed(self) -> None:
        """Its process ended: the host resets the line, if the network lets it."""
        blocked = self.pair in self._network.blocked
        self.close()
        if blocked:
            self.other.quiet()
