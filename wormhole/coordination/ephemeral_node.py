"""Keeps one ephemeral ZooKeeper node: makes it again after a lost session, or when another client deletes it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from wormhole.coordination.change_signal import Signal, first_of
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.model.errors import ConfigError, CoordinationLost, WormholeError

__all__ = ["EphemeralNode", "NodeTaken"]

_log = logging.getLogger(__name__)

_SHOWN: Final = 300
"""Characters shown of another session's content."""


class NodeTaken(Exception):  # noqa: N818 - a result for the caller, which makes an error of it
    """Another session holds the node. ``by``: the content that it wrote there."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


class EphemeralNode:
    """The registration of one node, owned by ``session``. ``held`` and ``exclusive``: see the port.

    ``left_over``: whether the content of another session's node shows that no process keeps this node any more. Such a
    node was made by this process in an earlier session, or by a process that is known to be dead. It is replaced at
    once. A node for which ``left_over`` raises :class:`~wormhole.model.errors.ConfigError` is not replaced. A node that
    belongs to no session was written by hand or copied, and is replaced too.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        path: str,
        data: bytes,
        on_closed: Callable[[EphemeralNode], None],
        left_over: Callable[[bytes], bool] = lambda data: False,
    ) -> None:
        self.exclusive = True
        self._left_over = left_over
        self._session = session
        self.path = path
        self._data = data
        self._written: bytes | None = None
        self._on_closed = on_closed
        self._keeper: asyncio.Task[None] | None = None
        self._changed = Signal()
        self.held = True

    async def open(self) -> None:
        """Make the node and keep it.

        If another session holds the node, this waits as long as that session can outlive its process, and then raises
        :class:`NodeTaken`. Raises :class:`~wormhole.model.errors.CoordinationLost`; a node that the failed call made
        is removed at the session's end.
        """
        # A killed process's node stays until its session times out, which the server rounds up.
        patience = self._session.timeout_s() * 1.5 + 1.0
        try:
            async with asyncio.timeout(patience):
                await self._hold()
        except TimeoutError:
            raise NodeTaken(await self._holder()) from None
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.path}")

    def update(self, data: bytes) -> None:
        """Set the node's content to ``data``. Without contact it is written when contact is back."""
        self._data = data
        self._changed.notify()

    async def close(self) -> None:
        """Delete the node. Without contact the end of its session deletes it. Idempotent."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper
        self._on_closed(self)
        with contextlib.suppress(WormholeError, NoNodeError):
            if await self._is_ours():
                await self._session.call(f"withdraw {self.path}", lambda client: client.delete_async(self.path))

    async def _keep(self) -> None:
        warned, refused = False, ""
        while True:
            contact_seen, seen = self._session.signal.version, self._changed.version
            try:
                async with asyncio.timeout(5.0):
                    await self._hold()
                    await self._write()
                warned, refused = False, ""
            except TimeoutError:
                if not warned:
                    _log.warning("%s is held by another session (%s): waiting for it", self.path, await self._holder())
                warned = True
                continue
            except CoordinationLost:
                await self._session.pause(contact_seen)
                continue
            except (WormholeError, NoNodeError) as error:
                if str(error) != refused:
                    _log.warning("%s could not be kept, a retry follows: %s", self.path, error)
                refused = str(error)
                await self._session.pause(contact_seen)
                continue
            await first_of(self._session.signal.wait(contact_seen), self._changed.wait(seen))

    async def _hold(self) -> None:
        """Return once the node exists, is held by this session and is watched. Waits while another session holds it."""
        while True:
            seen, data = self._changed.version, self._data
            try:
                await self._session.call(f"announce {self.path}", partial(self._create, data))
            except NodeExistsError:
                pass
            except CoordinationLost:
                self._written = None  # the node may have been made although the call failed
                raise
            else:
                self._written = data
            self.held = await self._is_ours()
            if self.held:
                return
            if not await self._replaced():
                await self._changed.wait(seen)

    async def _replaced(self) -> bool:
        """Delete the node if it is left over.

        Another process may have replaced it by then, which ZooKeeper cannot check. That process sees the deletion, and
        makes its node again.
        """
        try:
            data, stat = await self._session.call(f"read {self.path}", lambda client: client.get_async(self.path))
            if not stat.ephemeralOwner:
                _log.warning("%s belongs to no session, so no process is behind it: replacing it", self.path)
            elif self._is_left_over(bytes(data)):
                _log.info("%s is left over from a session whose process is gone: replacing it", self.path)
            else:
                return False
            await self._session.call(
                f"replace {self.path}", lambda client: client.delete_async(self.path, version=stat.version)
            )
        except (NoNodeError, BadVersionError):  # it changed meanwhile
            pass
        except ConfigError as error:
            if not isinstance(error.__cause__, NotEmptyError):
                raise
            return False
        return True

    def _is_left_over(self, data: bytes) -> bool:
        try:
            return self._left_over(data)
        except ConfigError:  # no valid record
            return False

    def _create(self, data: bytes, client: Any) -> Any:
        return client.create_async(self.path, data, ephemeral=True, makepath=True)

    async def _write(self) -> None:
        data = self._data
        if self._written != data:
            self._written = None  # until the answer, the node may have the old or the new content
            await self._session.call(f"write {self.path}", lambda client: client.set_async(self.path, data))
            self._written = data

    async def _is_ours(self) -> bool:
        stat: Any = await self._session.call(
            f"look at {self.path}", lambda client: client.exists_async(self.path, self._fired)
        )
        return stat is not None and stat.ephemeralOwner == self._session.session_id

    def _fired(self, _event: object) -> None:  # in kazoo's thread
        self._session.post(self._changed.notify)

    async def _holder(self) -> str:
        try:
            data, stat = await self._session.call("read", lambda client: client.get_async(self.path))
        except (NoNodeError, WormholeError):
            return "gone by now"
        if not stat.ephemeralOwner:
            return f"{self.path} belongs to no session and has nodes below it: delete them"
        text = bytes(data[: 4 * _SHOWN]).decode(errors="replace")
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(data):,} bytes)"
