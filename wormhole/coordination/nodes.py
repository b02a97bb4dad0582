"""Reads, lists, watches and writes nodes of ZooKeeper as values, in one session."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError

from wormhole.coordination.change_signal import Signal, first_of
from wormhole.coordination.kazoo_client import failure, refused
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.rules import not_owned
from wormhole.model.errors import ConfigError, CoordinationLost

__all__ = ["LARGEST_NODE", "MOST_CHILDREN", "MOST_PROBLEMS", "Nodes", "Watcher"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
Watcher = Callable[[object], None]

LARGEST_NODE: Final = 1_000_000
"""Limit in bytes: ZooKeeper refuses larger nodes and larger transactions (``jute.maxbuffer``)."""
MOST_PROBLEMS: Final = 1_000
"""Limit of the nodes that are reported by name at one time."""
_TOGETHER: Final = 100
"""Limits of one transaction, in nodes and in bytes, well below those of a request."""
_BYTES_TOGETHER: Final = 400_000
MOST_CHILDREN: Final = 50_000
"""Limit of the nodes below a node that are read. No installation has more."""


class Nodes:
    """The nodes of one session. Methods raise :class:`~wormhole.model.errors.CoordinationLost` without contact."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self.problems: dict[str, ConfigError] = {}
        """The nodes without a valid record, by path. Each was left out (or its last valid form kept) and logged
        once.
        """

    async def children(self, path: str, changed: Watcher | None = None) -> list[str]:
        """Names below ``path``, sorted; none if there is no such node (``changed`` then fires when it is made)."""
        try:
            names = await self.session.call(f"list {path}", lambda client: client.get_children_async(path, changed))
        except NoNodeError:
            if changed is None or not await self._appeared(path, changed):
                return []
            return await self.children(path, changed)
        if len(names) > MOST_CHILDREN:
            self.report(
                path,
                ConfigError(
                    f"{path}: has {len(names):,} nodes below it, of which the first {MOST_CHILDREN:,} by name are read",
                    hint="find out who makes them, and remove what is not needed",
                    code="record-too-large",
                ),
            )
            return sorted(names)[:MOST_CHILDREN]
        self.problems.pop(path, None)
        return sorted(names)

    async def get(self, path: str, changed: Watcher | None = None) -> bytes | None:
        """The node's content; ``None`` if there is no such node (``changed`` then fires when it is made)."""
        found = await self._read(path, changed)
        return None if found is None else found[0]

    async def get_all(self, paths: Sequence[str]) -> list[bytes | None]:
        """:meth:`get` for many nodes, read together."""
        answers = await self.session.call_together("read nodes", [_getting(path) for path in paths])
        return [None if isinstance(answer, NoNodeError) else bytes(answer[0]) for answer in answers]

    async def _read(self, path: str, changed: Watcher | None) -> tuple[bytes, int] | None:
        """The node's content, and the session that made it: 0 for a persistent node."""
        try:
            data, stat = await self.session.call(f"read {path}", lambda client: client.get_async(path, changed))
        except NoNodeError:
            if changed is None or not await self._appeared(path, changed):
                return None
            return await self._read(path, changed)
        return bytes(data), int(stat.ephemeralOwner)

    async def _appeared(self, path: str, changed: Watcher) -> bool:
        there = await self.session.call(f"look for {path}", lambda client: client.exists_async(path, changed))
        return there is not None

    async def open_to_all(self, path: str) -> bool:
        """Whether every client has some right at the node; false if there is no such node."""
        try:
            rights, _ = await self.session.call(f"look at {path}", lambda client: client.get_acls_async(path))
        except NoNodeError:
            return False
        return any(one.id.scheme == "world" for one in rights)

    async def sync(self) -> None:
        """Ensure that later reads are no older than this call. A server may lag behind the leader."""
        await self.session.call("sync", lambda client: client.sync_async("/"))

    async def version(self, path: str) -> int:
        """The number of writes to the node since it was made; 0 if the node does not exist."""
        stat: Any = await self.session.call(f"look at {path}", lambda client: client.exists_async(path))
        return 0 if stat is None else int(stat.version)

    async def versioned(self, path: str) -> tuple[bytes, int]:
        """The content of a node that exists, and its version."""
        data, stat = await self.session.call(f"read {path}", lambda client: client.get_async(path))
        return bytes(data), int(stat.version)

    async def replace(self, path: str, data: bytes, version: int) -> None:
        """Write the node if it still has this version. Raises ``BadVersionError``."""
        _check_size(path, data)
        await self.session.call(f"write {path}", lambda client: client.set_async(path, data, version))

    async def ensure(self, path: str) -> None:
        """Make the node, empty, and the nodes above it, if they are missing."""
        await self.session.call(f"make {path}", lambda client: client.ensure_path_async(path))

    async def put(self, path: str, data: bytes) -> None:
        """Write the node, and make it if it is missing.

        Raises :class:`~wormhole.model.errors.ConfigError` when it is too large.
        """
        _check_size(path, data)
        try:
            await self.session.call(f"write {path}", lambda client: client.set_async(path, data))
        except NoNodeError:
            try:
                await self.session.call(f"create {path}", lambda client: client.create_async(path, data, makepath=True))
            except NodeExistsError:  # another client was faster; the last write stays
                await self.session.call(f"write {path}", lambda client: client.set_async(path, data))

    async def remove(self, path: str) -> None:
        """Delete the node, if there is one."""
        with contextlib.suppress(NoNodeError):
            await self.session.call(f"remove {path}", lambda client: client.delete_async(path))

    async def remove_below(self, path: str) -> None:
        """Delete all nodes below the node. One call deletes about :data:`MOST_CHILDREN` at most; another call deletes
        the rest.
        """
        found: list[str] = []
        left = await self._below(path)
        while left:
            found.append(left.pop())
            below = await self._below(found[-1])
            left += below
            if len(found) >= MOST_CHILDREN and not below:  # no node that was found can be deleted before these
                break
        for one in reversed(found):
            try:
                await self.remove(one)
            except ConfigError as error:
                if not isinstance(error.__cause__, NotEmptyError):  # a node with children is deleted in a later round
                    raise

    async def _below(self, path: str) -> list[str]:
        return [f"{path}/{name}" for name in await self.children(path)]

    async def put_all(self, nodes: Mapping[str, bytes], fence: str = "") -> None:
        """:meth:`put` for many small nodes, in as few requests as possible.

        ``fence``: the path of a node without which none is written. When it is missing,
        :class:`~wormhole.model.errors.CoordinationLost` is raised; earlier requests had their effect.
        """
        for some in _groups(nodes):
            for path, data in some.items():
                _check_size(path, data)
            together = (len(some) > 1 or bool(fence)) and (
                await self._put_together(some, set(), fence) is None
                or await self._put_together(some, await self._lacking(some), fence) is None
            )
            if not together:
                # Another process makes or removes some nodes, or a write is refused: single writes show which node.
                for path, data in some.items():
                    await (self._put_fenced(path, data, fence) if fence else self.put(path, data))

    async def _put_fenced(self, path: str, data: bytes, fence: str) -> None:
        """:meth:`put` if the node ``fence`` exists."""
        while error := await self._put_together({path: data}, await self._lacking({path: data}), fence):
            if not isinstance(error, NoNodeError | NodeExistsError):  # those two: the nodes changed meanwhile
                raise refused(f"write {path}", self.session.settings, error)

    async def _put_together(
        self, nodes: Mapping[str, bytes], lacking: Collection[str], fence: str
    ) -> KazooException | None:
        """Write all of the nodes in one transaction, or none. Returns the reason if none were written."""

        def ask(client: Any) -> Any:
            transaction = client.transaction()
            if fence:
                transaction.check(fence, -1)
            for path, data in nodes.items():
                if path in lacking:
                    transaction.create(path, data)
                else:
                    transaction.set_data(path, data)
            return transaction.commit_async()

        results = await self.session.call("write nodes", ask)
        if fence and isinstance(results[0], NoNodeError):
            raise not_owned(f"writing {next(iter(nodes))}")
        return failure(results)

    async def _lacking(self, nodes: Mapping[str, bytes]) -> set[str]:
        """The paths of ``nodes`` that do not exist. Their parents are made."""
        there = set()
        for folder in sorted({path.rpartition("/")[0] for path in nodes}):
            await self.ensure(folder)
            names = await self.session.call(f"list {folder}", _listing(folder))
            there |= {f"{folder}/{name}" for name in names}
        return nodes.keys() - there

    async def each(self, items: Iterable[Any], ask: Callable[[Any], Awaitable[_T | None]]) -> list[_T]:
        """The results of ``ask`` for all items at once, without ``None``. The session bounds how many are in flight."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_caught(ask(item))) for item in items]
        results = [task.result() for task in tasks]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if result is not None and not isinstance(result, BaseException)]

    async def record(self, path: str, parse: Callable[[bytes], _T], next_step: str = "") -> _T | None:
        """The node's content now, parsed by ``parse``; see :meth:`parsed`. A node that its maker closed to this client
        is left out like one that is not valid.
        """
        try:
            data = await self.get(path)
        except ConfigError as error:
            self._not_readable(path, error, next_step)
            return None
        return self.parsed(path, data, parse, next_step)

    async def live_record(
        self,
        path: str,
        parse: Callable[[bytes], _T],
        changed: Watcher | None,
        next_step: str,
        nobodys: str,
        left: Callable[[int], bool] = lambda session: False,
    ) -> _T | None:
        """:meth:`record` of an ephemeral node, watched.

        A persistent node was written by hand, or copied with a whole tree. It represents no process, so it is left out;
        ``nobodys``: the next step then. A node of a session for which ``left`` is true is left out too.
        """
        try:
            found = await self._read(path, changed)
        except ConfigError as error:
            self._not_readable(path, error, next_step)
            return None
        if found is not None and not found[1]:
            text = f"{path}: belongs to no session: it was written by hand or copied, and no process is behind it"
            self.report(path, ConfigError(text, hint=nobodys))
            return None
        if found is not None and left(found[1]):
            return None
        return self.parsed(path, None if found is None else found[0], parse, next_step)

    def _not_readable(self, path: str, error: ConfigError, next_step: str) -> None:
        """Report a node that its maker closed to this client. Raises ``error`` if it has another cause."""
        if not isinstance(error.__cause__, NoAuthError):
            raise error
        self.report(
            path,
            ConfigError(
                f"{path}: may not be read by us, as its maker decided",
                hint=next_step or None,
                code="coordination-refused",
            ),
        )

    def parsed(self, path: str, data: bytes | None, parse: Callable[[bytes], _T], next_step: str = "") -> _T | None:
        """The node's content, parsed by ``parse``; ``None`` if it is missing or not valid (see :attr:`problems`).

        ``next_step``: for a problem that names none.
        """
        if data is None:
            self.problems.pop(path, None)
            return None
        try:
            parsed = parse(data)
        except ConfigError as error:
            error.hint = error.hint or next_step or None
            self.report(path, error)
            return None
        self.problems.pop(path, None)
        return parsed

    def report(self, path: str, error: ConfigError) -> None:
        """Keep a problem, and log it once. Only :data:`MOST_PROBLEMS` are kept, because each node may cause one."""
        if str(self.problems.get(path)) == str(error):
            return
        if len(self.problems) < MOST_PROBLEMS or path in self.problems:
            _log.error("left out: %s", error)
            self.problems[path] = error

    def forget_below(self, path: str, names: Collection[str]) -> None:
        """Drop the problems of nodes below ``path`` that are not among ``names`` any more."""
        for known in [one for one in self.problems if one.rpartition("/")[0] == path]:
            if known.rpartition("/")[2] not in names:
                del self.problems[known]

    async def watch(self, read: Callable[[Watcher], Awaitable[_T]], stopped: Callable[[], bool]) -> AsyncIterator[_T]:
        """The results of ``read``, now and after every change of what it watched, until ``stopped()``. Silent without
        contact.

        Raises :class:`~wormhole.model.errors.ConfigError` when the first read is refused. A later refusal is logged
        once, and the last result stays valid until the rights are given back.
        """
        changed, contact = Signal(), self.session.signal

        def fired(
            _event: object,
        ) -> None:  # in kazoo's thread; the same object each time, so kazoo keeps it once per node
            self.session.post(changed.notify)

        last: list[_T] = []
        refused = ""
        while not stopped():
            seen, contact_seen = changed.version, contact.version
            try:
                state = await read(fired)
            except CoordinationLost:
                await self.session.pause(contact_seen)
                continue
            except ConfigError as error:
                if not last:
                    raise
                if str(error) != refused:
                    _log.error("what was read last stays in force: %s", error)
                refused = str(error)
                await self.session.pause(contact_seen)
                continue
            refused = ""
            if last != [state]:
                last = [state]
                yield state
            if changed.version == seen:
                await first_of(changed.wait(seen), contact.wait(contact_seen))


def _check_size(path: str, data: bytes) -> None:
    if len(data) > LARGEST_NODE:
        raise ConfigError(f"{path}: {len(data)} bytes are too large for a ZooKeeper node", code="record-too-large")


def _getting(path: str) -> Callable[[Any], Any]:
    return lambda client: client.get_async(path)


def _listing(path: str) -> Callable[[Any], Any]:
    return lambda client: client.get_children_async(path)


def _groups(nodes: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """The nodes in groups, each small enough for one transaction."""
    some: dict[str, bytes] = {}
    size = 0
    for path, data in nodes.items():
        if some and (len(some) == _TOGETHER or size + len(data) > _BYTES_TOGETHER):
            yield some
            some, size = {}, 0
        some[path] = data
        size += len(data)
    if some:
        yield some


async def _caught(question: Awaitable[_T]) -> _T | Exception:
    # Inside a TaskGroup an error would be raised as a group; callers need the error itself.
    try:
        return await question
    except Exception as error:  # noqa: BLE001 - handed on by the caller
        return error
