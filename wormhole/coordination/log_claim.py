"""The ownership of a log in ZooKeeper. One transaction takes the log, and another gives it up.

The transaction that takes the log makes the owner's node and a node below ``claims``, raises the term, and deletes the
nodes of a former owner. It contains the version of the term that was read, so if two processes take the log at once,
one of them fails.

The term's node names the claim that was made with it. So a process can determine whether it was the last one that took
the log: after a lost answer, after a lost session, and when ZooKeeper lost its data.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError

from wormhole.coordination.change_signal import Signal, first_of
from wormhole.coordination.kazoo_client import failure, refused
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.nodes import Nodes, Watcher
from wormhole.coordination.port import TERMS_KEPT, Contact, LogGroup, PublisherInfo, Term
from wormhole.coordination.records import (
    Paths,
    TermRecord,
    owner_from_json,
    owner_to_json,
    term_from_json,
    term_to_json,
)
from wormhole.coordination.rules import REPLACED_WHEN_TAKEN, TAKEN_AGAIN, log_taken, who
from wormhole.model.errors import ConfigError, CoordinationLost, WormholeError
from wormhole.model.record import LARGEST_COUNT

__all__ = ["ZooKeeperClaim", "ensure_below_logs", "withdraw"]

_log = logging.getLogger(__name__)

_TOGETHER: Final = 100
"""Limit of the former owners' claims that one transaction deletes."""


@dataclass(slots=True, frozen=True)
class _Found:
    """The nodes of a log, as they were read.

    ``holder``: content of the owner's node (``None``: there is none). ``session``: the session that made it. 0: none
    did, so it was written by hand or copied, and the log has no owner. ``version``: the version of the term's node
    (``None``: there is none). ``made``: the transaction that made that node. ``record``: its content (``None``: nothing
    valid).
    """

    holder: bytes | None
    session: int
    record: TermRecord | None
    version: int | None
    made: int
    claims: tuple[str, ...]
    move: bool

    def next_number(self) -> int:
        """The number of the next term. Each taking writes the term's node once, so the node's version replaces a number
        that cannot be read.
        """
        if self.record is not None and self.record.number < LARGEST_COUNT:
            return self.record.number + 1
        return 1 if self.version is None else self.version + 2


class ZooKeeperClaim:
    """The ZooKeeper form of :class:`~wormhole.coordination.port.LogClaim`.

    ``server``: for the terms. ``now``: seconds since 1970. ``on_ended`` is called once: when the log could not be
    taken, was lost or was given up. Its argument has the names of the claims that may still be in ZooKeeper, for
    :func:`withdraw`.
    """

    def __init__(
        self,
        nodes: Nodes,
        paths: Paths,
        group: LogGroup,
        info: PublisherInfo,
        server: str,
        now: Callable[[], float],
        on_ended: Callable[[ZooKeeperClaim, Collection[str]], None],
    ) -> None:
        self.group = group
        self._session, self._nodes, self._paths = nodes.session, nodes, paths
        self._info, self._server, self._now = info, server, now
        self._on_ended = on_ended
        self._claim = ""
        self._number = 0
        self._held_in = 0
        """The session that holds the claim; 0: none, as far as is known."""
        self._made: set[str] = set()
        """Claims whose transactions were sent and may have succeeded. The last claim of the log is one of these or
        belongs to another process.
        """
        self._reason = ""
        self._gone = asyncio.Event()
        self._changed = Signal()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        there = self._session.contact is not Contact.LOST
        return there and self._held_in != 0 and self._held_in == self._session.session_id

    @property
    def term(self) -> int:
        return self._number

    def fence(self) -> str:
        return self._paths.claim(self.group, self._claim)

    async def note_server(self, server: str) -> None:
        self._server = server  # used again for the term that follows a lost session
        found = await self._look()
        if not self._hold(found) or found.record is None or not found.record.terms:
            return
        *before, last = found.record.terms
        record = term_to_json(replace(found.record, terms=(*before, replace(last, server=server))))
        fence, path, version = self.fence(), self._paths.term(self.group), found.version

        def ask(client: Any) -> Any:
            transaction = client.transaction()
            transaction.check(fence, -1)
            transaction.set_data(path, record, version=version)
            return transaction.commit_async()

        error = failure(await self._session.call(f"note the server of {self.group}", ask))
        if error is not None and not isinstance(error, BadVersionError | NoNodeError):  # those two: the claim is gone
            raise refused(f"note the server of {self.group}", self._session.settings, error)

    async def lost(self) -> str:
        await self._gone.wait()
        return self._reason

    async def open(self, why: str) -> None:
        """Take the log, and keep it.

        Raises the errors of :meth:`~wormhole.coordination.port.Coordinator.own_log`. Claims that were made before an
        error are passed to ``on_ended``.
        """
        try:
            while not self._hold(found := await self._look()):
                # A node of our own session is left over: from a lost answer, or from a claim that could not be deleted.
                if found.holder is not None and found.session not in (0, self._session.session_id):
                    raise log_taken(self._info, self._shown(found.holder))
                contact_seen = self._session.signal.version
                try:
                    await self._take(found, why, moved=True)
                except CoordinationLost:  # the transaction may have succeeded: read the nodes first
                    await self._session.pause(contact_seen)
        except BaseException:
            self._end()
            raise
        self._keeper = asyncio.create_task(self._keep(), name=f"own {self.group}")

    async def close(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper
        if self._gone.is_set():
            return
        self._held_in = 0
        try:
            with contextlib.suppress(WormholeError):
                await withdraw(self._session, self._paths, self.group, self._made)
                self._made.clear()
        finally:
            self._end()

    def _end(self) -> None:
        self._held_in = 0
        self._on_ended(self, frozenset(self._made))

    async def _keep(self) -> None:
        said = ""
        while True:
            contact_seen, seen = self._session.signal.version, self._changed.version
            try:
                reason = await self._kept()
                said = ""
            except CoordinationLost:
                await self._session.pause(contact_seen)
                continue
            except WormholeError as error:
                if str(error) != said:
                    _log.warning("%s could not be taken again, a retry follows: %s", self.group, error)
                said = str(error)
                await self._session.pause(contact_seen)
                continue
            if reason:
                self._reason = reason
                self._gone.set()
                self._end()
                return
            await first_of(self._session.signal.wait(contact_seen), self._changed.wait(seen))

    async def _kept(self) -> str:
        """Return empty text once the claim is held and watched, or the reason why it cannot be held."""
        while not self._hold(found := await self._look(self._fired)):
            if found.record is None or found.record.claim not in self._made:
                return self._why_lost(found)
            self._held_in = 0
            _log.warning("%s: the entry of its owner, this process, is gone: taking the log again", self.group)
            if not await self._take(found, TAKEN_AGAIN, moved=False):
                return f"{self._paths.term(self.group)} in ZooKeeper was made anew: another publisher may own the log"
        return ""

    def _hold(self, found: _Found) -> bool:
        """Whether ``found`` has a claim of this process in the present session. If so, it is recorded as held."""
        record = found.record
        if record is None or record.claim not in self._made:
            return False
        if not found.session or found.session != self._session.session_id or record.claim not in found.claims:
            return False
        self._claim, self._number, self._held_in = record.claim, record.number, found.session
        self._made = {record.claim}
        return True

    async def _look(self, changed: Watcher | None = None) -> _Found:
        """The nodes of the log at one point in time.

        An owner's entry and its claim are made and deleted together. So if the entry is the same before and after the
        claims are read, these claims belong to it. Otherwise a former owner's entry could be found without its claim,
        and its successor's entry be deleted instead.
        """
        while True:
            holder, term, claims, move, still = await self._read(changed)
            if (0 if isinstance(holder, NoNodeError) else holder[1].czxid) == (0 if still is None else still.czxid):
                return self._found(holder, term, claims, move)

    async def _read(self, changed: Watcher | None) -> list[Any]:
        paths, group = self._paths, self.group
        try:
            return await self._session.call_together(
                f"look at {paths.log(group)}",
                [
                    lambda client: client.get_async(paths.owner(group), changed),
                    lambda client: client.get_async(paths.term(group)),
                    lambda client: client.get_children_async(paths.claims(group), changed),
                    lambda client: client.exists_async(paths.move(group)),
                    lambda client: client.exists_async(paths.owner(group)),
                ],
            )
        except ConfigError as error:
            if not isinstance(error.__cause__, NoAuthError):
                raise
            raise log_taken(self._info, f"some node below {paths.log(group)} may not be read by us") from error

    def _found(self, holder: Any, term: Any, claims: Any, move: Any) -> _Found:
        """``holder``, ``term`` and ``claims``: kazoo's answers, or the exception that there is no node."""
        owned, known = not isinstance(holder, NoNodeError), not isinstance(term, NoNodeError)
        path = self._paths.term(self.group)
        return _Found(
            bytes(holder[0]) if owned else None,
            int(holder[1].ephemeralOwner) if owned else 0,
            self._nodes.parsed(
                path, bytes(term[0]) if known else None, partial(term_from_json, where=path), REPLACED_WHEN_TAKEN
            ),
            int(term[1].version) if known else None,
            int(term[1].czxid) if known else 0,
            () if isinstance(claims, NoNodeError) else tuple(claims),
            move is not None,
        )

    async def _take(self, found: _Found, why: str, *, moved: bool) -> bool:
        """Replace ``found`` by a claim of this process. Does nothing if the nodes changed since they were read.

        ``moved``: also remove an operator's request for the log. Returns false only if the log was taken but the term's
        node was made anew, with the same version as the one that was read.
        """
        paths, group, info = self._paths, self.group, self._info
        await ensure_below_logs(self._nodes, paths, paths.claims(group))
        left = [paths.claim(group, name) for name in found.claims]
        if not await self._removed(left[_TOGETHER:]):
            return True
        claim, number = secrets.token_hex(16), found.next_number()
        term = Term(number, info.copy, info.host, info.pid, self._server, self._now(), why)
        known = found.record.terms if found.record is not None else ()
        record = term_to_json(TermRecord(number, claim, (*known, term)[-TERMS_KEPT:]))
        deleted = [paths.owner(group)] if found.holder is not None else []
        deleted += left[:_TOGETHER]
        cleared = [paths.move(group)] if moved and found.move else []

        def ask(client: Any) -> Any:
            transaction = client.transaction()
            for path in deleted:
                transaction.delete(path)
            transaction.create(paths.owner(group), owner_to_json(info), ephemeral=True)
            transaction.create(paths.claim(group, claim), ephemeral=True)
            if found.version is None:
                transaction.create(paths.term(group), record)
            else:
                transaction.set_data(paths.term(group), record, version=found.version)
            for path in cleared:
                transaction.delete(path)
            return transaction.commit_async()

        self._made.add(claim)  # before it is sent: the answer may be lost
        results = await self._session.call(f"own {group}", ask)
        error = failure(results)
        if error is None:
            if found.holder is not None and not found.session:
                _log.warning("%s belonged to no session, so the log had no owner: it was replaced", paths.owner(group))
            return found.version is None or results[len(deleted) + 2].czxid == found.made
        self._made.discard(claim)
        if isinstance(error, NotEmptyError):
            await self._clear([*deleted, *cleared])
        elif not isinstance(error, BadVersionError | NodeExistsError | NoNodeError):  # else it changed meanwhile
            touched = [*deleted, paths.owner(group), paths.claim(group, claim), paths.term(group), *cleared]
            at = next((path for path, result in zip(touched, results, strict=False) if result is error), "")
            raise refused(f"own {group}, at {at}", self._session.settings, error)
        return True

    async def _removed(self, paths: Sequence[str]) -> bool:
        """Delete claims of former owners that exceed one transaction. Returns whether they are deleted."""
        if paths:
            _log.warning("%s: %d claims of former owners are too many: removing them", self.group, len(paths))
        try:
            await self._session.call_together(f"remove claims of {self.group}", [_deleting(path) for path in paths])
        except ConfigError as error:
            if not isinstance(error.__cause__, NotEmptyError):
                raise
            await self._clear(paths)
            return False
        return True

    async def _clear(self, paths: Iterable[str]) -> None:
        """Delete the children that another client made below nodes that should have none."""
        for path in paths:
            below = await self._nodes.children(path)
            if below:
                _log.warning(
                    "%s has %d nodes below it, which no publisher makes: they are removed for a publisher to take "
                    "%s. Next: find out what makes them",
                    path,
                    len(below),
                    self.group,
                )
                await self._nodes.remove_below(path)

    def _why_lost(self, found: _Found) -> str:
        path = self._paths.term(self.group)
        if found.version is None:
            return f"ZooKeeper lost {path}, or was put back to before it was made: another publisher may own the log"
        if found.record is None or not found.record.terms:
            return f"{path} in ZooKeeper holds no valid record of the log's owners: another publisher may own the log"
        last = found.record.terms[-1]
        return f"{who(last)}, took the log in term {last.number}"

    def _shown(self, holder: bytes) -> str:
        path = self._paths.owner(self.group)
        try:
            return who(owner_from_json(self.group, holder, path))
        except ConfigError:
            return f"{path} holds no valid record"

    def _fired(self, _event: object) -> None:  # in kazoo's thread
        self._session.post(self._changed.notify)


def _deleting(path: str) -> Callable[[Any], Any]:
    return lambda client: client.delete_async(path)


async def withdraw(session: ZooKeeperSession, paths: Paths, group: LogGroup, claims: Collection[str]) -> None:
    """Delete those of ``claims`` that exist, each together with the owner's node, which then belongs to the same
    process.
    """

    def asking(claim: str) -> Callable[[Any], Any]:
        def ask(client: Any) -> Any:
            transaction = client.transaction()
            transaction.delete(paths.claim(group, claim))
            transaction.delete(paths.owner(group))
            return transaction.commit_async()

        return ask

    for claim in claims:
        error = failure(await session.call(f"give up {group}", asking(claim)))
        if error is not None and not isinstance(error, NoNodeError):
            raise refused(f"give up {group}", session.settings, error)


async def ensure_below_logs(nodes: Nodes, paths: Paths, path: str) -> None:
    """Make the folder ``path``.

    Raises :class:`~wormhole.model.errors.ConfigError` if this identity may not make the topmost folder. The error
    contains how to make it.
    """
    try:
        await nodes.ensure(path)
    except ConfigError as error:
        if not isinstance(error.__cause__, NoAuthError):
            raise
        raise ConfigError(
            f"{paths.logs} is missing in ZooKeeper, and only an operator may make it",
            hint="run any command with the operator's credentials once, such as `wormholectl config show`; "
            "credentials of an earlier release did not include this node",
            code="coordination-refused",
        ) from error
