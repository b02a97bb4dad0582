"""Logs which publishers are connected, and what an operator should check while no publisher is connected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from subscriber_sdk.options.subscriber_options import SHARED, Options
from subscriber_sdk.stream.flow_port import PushingPeer
from wormhole.model.problem import Problem

__all__ = ["Publishers"]

log = logging.getLogger("subscriber_sdk")

_PATIENCE_S: Final = 10.0
"""Seconds without a publisher before a warning. A publisher dials a new subscriber within a second, and a restarted
publisher is back within a few seconds."""
_REPEAT_S: Final = 300.0
_SHOWN: Final = 8
_REMEMBERED: Final = 64


class Publishers:
    """The log lines about publishers. Every method is called on the event loop, whose clock is used.

    ``serves``: returns whether this process has a flow.
    """

    def __init__(self, options: Options, serves: Callable[[], bool]) -> None:
        self._options = options
        self._serves = serves
        self._connected: set[PushingPeer] = set()
        self._refused: dict[str, None] = {}  # refusals that were logged, the oldest first
        self._address = ""
        self._waits = False
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def expected(self, address: str) -> None:
        """Expect publishers from now on. ``address``: where this subscriber listens; empty: it dials the publishers."""
        options, self._address, self._waits = self._options, address, True
        where = "without a coordinator" if not options.coordinator else f"coordinator {options.coordinator}"
        if options.coordinator == SHARED:
            where = "coordinator of the application"
        dialled = ", ".join(options.dial) or "the publishers that the coordinator lists"
        what = f"listens at {address}" if address else f"dials {dialled}"
        log.info("subscriber %s %s, %s", self._subscriber, what, where)
        self._wait()

    def connected(self, peer: PushingPeer) -> None:
        """Log that a publisher's stream was accepted."""
        log.info("publisher %s connected", peer.name)
        self._connected.add(peer)
        self._wait()

    def refused(self, who: str, why: Problem) -> None:
        """Log that a publisher was refused. The publisher dials repeatedly, but the refusal is logged once."""
        if why.text in self._refused:
            return
        self._refused[why.text] = None
        if len(self._refused) > _REMEMBERED:
            del self._refused[next(iter(self._refused))]
        log.warning("refused %s: %s", who, why)

    def disconnected(self, peer: PushingPeer) -> None:
        """Log that a stream is over. A stream that was not accepted is ignored."""
        if peer in self._connected:
            self._connected.discard(peer)
            if not self._connected:
                self._wait()

    def close(self) -> None:
        """Log nothing from now on."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._waits = False

    @property
    def _subscriber(self) -> str:
        return f"{self._options.application}/{self._options.instance}"

    def _wait(self) -> None:
        """Begin to wait for a publisher, or, if one is connected, for a shard of that publisher."""
        if self._waits:
            self._since = asyncio.get_running_loop().time()
            self._look_after(_PATIENCE_S)

    def _look_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        waited = asyncio.get_running_loop().time() - self._since
        application, coordinator = self._options.application, self._options.coordinator
        there = f" -c {coordinator}" if coordinator and coordinator != SHARED else ""
        if self._connected:
            if not self._serves():
                # Logged once: an application may have more subscribers than shards.
                log.info(
                    "publisher %s has given this subscriber no shard within %.0f s: `wormholectl flows%s` shows who "
                    "has them, or what holds them",
                    ", ".join(sorted(peer.name for peer in self._connected)[:_SHOWN]),
                    waited,
                    there,
                )
            return
        step = (
            f"`wormholectl publishers{there}` lists the publishers that run, `wormholectl subscribers{there}` how they "
            f"reach this one, `wormholectl why-lag {application}/SHARD{there}` what holds a shard"
        )
        if self._options.dial:
            step = "check the addresses in `dial`, and that these publishers serve the application"
        elif not self._address:
            step = f"`wormholectl publishers{there}` lists those that run; each needs a fixed port in `attach_listen`"
        elif not coordinator:
            step = (
                f"the publisher's configuration has to list {self._address} in [applications.{application}.subscribers]"
                f"; {step}"
            )
        log.warning(
            "no publisher is connected to subscriber %s%s for %.0f s. Next: %s",
            self._subscriber,
            f" at {self._address}" if self._address else "",
            waited,
            step,
        )
        self._look_after(_REPEAT_S)
