"""One ZooKeeper session inside an event loop: calls, contact, and proof of contact.

kazoo runs threads of its own. A call is handed to it in a thread of this module, because kazoo wakes its writer through
a blocking socket. The answer comes back through ``call_soon_threadsafe``. Everything else here runs in the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from kazoo.exceptions import KazooException
from kazoo.protocol.states import KazooState, KeeperState

from wormhole.config import CoordinatorConfig
from wormhole.coordination.change_signal import Signal
from wormhole.coordination.kazoo_client import (
    ANSWERS,
    LOST_ERRORS,
    connect_blocking,
    disconnect_blocking,
    lost,
    new_client,
    refused,
)
from wormhole.coordination.port import Contact
from wormhole.host.waiting import cancel_all
from wormhole.model.errors import WormholeError

__all__ = ["ZooKeeperSession"]

_log = logging.getLogger(__name__)

# Limit of the calls in flight. Further calls wait in this process's memory, not in kazoo's queue.
_CALLS_AT_ONCE: Final = 64
_CALLS_TOGETHER: Final = 64
"""The number of calls that use one slot when they are sent together: they are one task for kazoo's threads."""
_PROBES_PER_SESSION: Final = 10
_PROBES_AT_ONCE: Final = 2
"""Probes that wait for answers at one time.

Two, so that a late answer delays the next probe less. With more, kazoo would always have requests in flight. Only
without requests it checks whether the server still answers.
"""
_REPORTED: Final = 9 / 32
"""The part of a session timeout within which a follower reports its clients' live sessions to the leader.

It reports every quarter, and the local clock may be fast by an eighth.
"""
_CREDITED: Final = 2 / 9
"""The part of a session that a confirmed probe adds. With the lease of 2/3 it makes 8/9 of a session: the local clock
may be slow by an eighth.
"""


class ZooKeeperSession:
    """A session that reconnects for ever. ``signal`` is notified whenever contact changes.

    ZooKeeper's leader keeps a session for longer than 2/3 of its timeout from :meth:`last_contact` on. kazoo reports
    LOST only when a server does, long after the leader let the session expire. So contact is proved by a probe every
    tenth of a session timeout: a ``sync``, which the leader answers. Any other answer proves nothing, because a
    follower that is cut off from the leader still answers reads while the leader lets its sessions expire.
    """

    def __init__(self, settings: CoordinatorConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.signal = Signal()
        self._clock = clock
        self._granted = settings.session_timeout
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._slots = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._contact = Contact.LOST
        self._last_contact = -math.inf
        self._answered: deque[tuple[float, float]] = deque()
        """Probes, and the opening or continuation of the session: when each was sent and answered."""
        self._probes: set[asyncio.Task[None]] = set()
        self._prober: asyncio.Task[None] | None = None
        self._stopped_by = ""

    def __repr__(self) -> str:
        return f"<ZooKeeperSession {self.settings.zookeeper} {self._contact.value}>"

    @property
    def contact(self) -> Contact:
        return self._contact

    @property
    def running(self) -> bool:
        """Whether the session is between a successful :meth:`start` and :meth:`stop`."""
        return self._prober is not None

    @property
    def makes_top(self) -> bool:
        """Whether this client makes the nodes that all processes need.

        If there are identities, only the operator may. An earlier release, which made the identities, made fewer of
        these nodes.
        """
        access = self._client.access
        return access is None or access.operator == self._client.identity

    @property
    def session_id(self) -> int:
        """The session's id, which ZooKeeper notes as owner of its ephemeral nodes, also while it is not connected. It
        is 0 after a server reported that the session is over.
        """
        return 0 if self._client is None else int(self._client._session_id or 0)  # `client_id` needs a connection

    def last_contact(self) -> float:
        return self._last_contact

    def timeout_s(self) -> float:
        """The session timeout: the requested one or the granted one, whichever is less."""
        return min(self._granted, self.settings.session_timeout)

    async def start(self) -> None:
        """Connect. Raises what :func:`~wormhole.coordination.kazoo_client.connect_blocking` raises."""
        self._loop = asyncio.get_running_loop()
        # Threads end when idle calls end. There are two, so that a call never waits for one that kazoo's socket delays.
        self._threads = ThreadPoolExecutor(2, "wormhole-zookeeper")
        try:
            self._client = await self._in_thread(new_client, self.settings, self._on_granted, self._clock)
            self._client.add_listener(self._on_state)
            connecting = asyncio.ensure_future(self._in_thread(connect_blocking, self._client, self.settings))
            try:
                await asyncio.shield(connecting)
            except asyncio.CancelledError:
                # The thread cannot be interrupted; a session that it opens later would keep our entries alive.
                with contextlib.suppress(WormholeError):
                    await connecting
                await self._in_thread(disconnect_blocking, self._client)
                raise
        except BaseException:
            self._threads.shutdown(wait=False)
            self._client = None
            raise
        self._set(Contact.CONNECTED)
        self._prober = asyncio.create_task(self._probe(), name="zookeeper-probe")

    async def stop(self) -> None:
        """End the session, which deletes its ephemeral nodes; idempotent."""
        prober, self._prober = self._prober, None
        if prober is None:
            return
        await cancel_all(prober, *self._probes)
        self._client.remove_listener(self._on_state)
        await self._in_thread(disconnect_blocking, self._client)
        assert self._threads is not None
        self._threads.shutdown(wait=False)
        self._set(Contact.LOST)

    async def call(self, what: str, ask: Callable[[Any], Any]) -> Any:
        """Await ``ask(client)``, one of kazoo's ``..._async`` calls. ``what``: its purpose, for errors.

        Raises :class:`~wormhole.model.errors.CoordinationLost` when contact is missing or gets lost (the call may have
        had its effect all the same), kazoo's own exceptions for the answers that callers handle
        (:data:`~wormhole.coordination.kazoo_client.ANSWERS`), and :class:`~wormhole.model.errors.ConfigError` for any
        other refusal.
        """
        (answer,) = await self.call_together(what, [ask])
        if isinstance(answer, KazooException):
            raise answer
        return answer

    async def call_together(self, what: str, asks: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """:meth:`call` for many requests, sent together with one change of threads there and one back.

        Returns the answers in the order of the requests. An exception that callers handle
        (:data:`~wormhole.coordination.kazoo_client.ANSWERS`) is returned as the answer.
        """
        found: list[Any] = []
        for first in range(0, len(asks), _CALLS_TOGETHER):
            found += await self._call_some(what, asks[first : first + _CALLS_TOGETHER])
        return found

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        """Run ``callback`` in the loop. Callable from any thread, also after the loop was closed."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self._loop.call_soon_threadsafe(callback, *arguments)

    async def pause(self, seen: int, longest: float = 1.0) -> None:
        """Wait for a change of contact since ``seen`` (a version of :attr:`signal`), or for a short time with
        jitter.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(random.uniform(longest / 2, longest)):
                await self.signal.wait(seen)

    async def _call_some(self, what: str, asks: Sequence[Callable[[Any], Any]]) -> list[Any]:
        try:
            # The timeout is half a session: a caller that waits longer has lost its lease anyway. Waiting for a slot is
            # not included: without contact every earlier call fails within its own time.
            async with self._slots, asyncio.timeout(max(self.timeout_s() / 2, 0.2)):
                answers = await self._ask(asks)
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, ANSWERS):
                    raise answer
        except (TimeoutError, *LOST_ERRORS) as error:
            raise lost(what, self.settings, error) from error
        except KazooException as error:
            raise refused(what, self.settings, error) from error
        return answers

    async def _ask(self, asks: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """The results of the requests: values and exceptions."""
        if self._client is None or not self._client.connected:
            raise TimeoutError("not connected")
        assert self._loop is not None
        answered: asyncio.Future[list[Any]] = self._loop.create_future()
        await self._in_thread(_Asked(self._client, asks, lambda answers: self.post(_settle, answered, answers)).ask)
        return await answered

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        assert self._loop is not None
        return await self._loop.run_in_executor(self._threads, function, *arguments)

    def _confirm(self, sent: float) -> None:
        """Record that the leader answered a probe that was sent at ``sent``.

        A session is prolonged when its follower reports it to the leader, not by a request that the follower passes on.
        So the answer shows that the leader heard of an earlier probe, which was answered so long before that the
        follower has reported since. The session ends at the earliest a whole timeout after that earlier probe was sent.
        """
        answered, before = self._answered, sent - self._granted * _REPORTED
        while len(answered) > 1 and answered[1][1] <= before:
            answered.popleft()
        earlier, its_answer = answered[0]
        if its_answer <= before:
            self._last_contact = max(self._last_contact, earlier + self.timeout_s() * _CREDITED)
        answered.append((sent, self._clock()))

    def _on_granted(self, seconds: float, asked: float) -> None:  # in kazoo's thread
        self.post(self._admitted, seconds, asked)

    def _admitted(self, seconds: float, asked: float) -> None:
        """Record that the leader opened or continued the session after ``asked``: it lives for a whole timeout from
        then on.

        Source: ZooKeeper's ``LearnerHandler.revalidateSession``, ``ZooKeeperServer.reopenSession``.
        """
        self._granted = seconds
        self._last_contact = max(self._last_contact, asked)
        self._answered = deque([(asked, self._clock())])

    def _on_state(self, state: str) -> None:  # in kazoo's thread
        contact = {KazooState.CONNECTED: Contact.CONNECTED, KazooState.SUSPENDED: Contact.SUSPENDED}
        self.post(self._set_if_running, contact.get(state, Contact.LOST))

    def _set_if_running(self, contact: Contact) -> None:
        if self.running:
            self._set(contact)
            if contact is Contact.CONNECTED:
                self._send_probe()

    def _set(self, contact: Contact) -> None:
        if contact is not self._contact:
            self._contact = contact
            self.signal.notify()

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(self.timeout_s() / _PROBES_PER_SESSION * random.uniform(0.9, 1.0))
            if len(self._probes) < _PROBES_AT_ONCE:
                self._send_probe()
            if self._contact is Contact.SUSPENDED and self._clock() - self._last_contact > self.timeout_s():
                # kazoo would report SUSPENDED until a server answers; the session may have expired by now.
                self._set(Contact.LOST)
            if self._client.client_state == KeeperState.CLOSED:
                await self._revive()

    def _send_probe(self) -> None:
        if self._client.connected:
            probe = asyncio.create_task(self._ask_leader(), name="ask ZooKeeper's leader")
            self._probes.add(probe)
            probe.add_done_callback(self._probes.discard)

    async def _ask_leader(self) -> None:
        sent = self._clock()
        with contextlib.suppress(TimeoutError, KazooException, *LOST_ERRORS):
            async with asyncio.timeout(self.timeout_s()):
                (answer,) = await self._ask([lambda client: client.sync_async("/")])
            if not isinstance(answer, BaseException):
                self._confirm(sent)

    async def _revive(self) -> None:
        """Start kazoo's connection thread again: it ended by an error, or because credentials were refused."""
        try:
            await self._in_thread(connect_blocking, self._client, self.settings)
        except WormholeError as error:
            if str(error) != self._stopped_by:
                _log.error("the ZooKeeper client stopped, and starting it again fails: %s", error)
            self._stopped_by = str(error)
        else:
            _log.warning("the ZooKeeper client stopped by itself and was started again")
            self._stopped_by = ""


class _Asked:
    """Requests that are sent together. ``done`` gets the answers, in kazoo's thread, after the last has arrived."""

    def __init__(self, client: Any, asks: Sequence[Callable[[Any], Any]], done: Callable[[list[Any]], None]) -> None:
        self._client = client
        self._asks = asks
        self._done = done
        self._answers: list[Any] = [None] * len(asks)
        self._open = len(asks)

    def ask(self) -> None:
        """Hand the requests to kazoo. An answer may arrive before the last request is handed over."""
        for number, ask in enumerate(self._asks):
            ask(self._client).rawlink(partial(self._answered, number))

    def _answered(self, number: int, result: Any) -> None:  # in the one thread in which kazoo calls back
        self._answers[number] = result.get_nowait() if result.exception is None else result.exception
        self._open -= 1
        if not self._open:
            self._done(self._answers)


def _settle(answered: asyncio.Future[list[Any]], answers: list[Any]) -> None:
    if not answered.done():  # a call whose timeout has passed is cancelled already
        answered.set_result(answers)
