"""Nodes of ZooKeeper, as values, in one session: read, listed, watched, written."""

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
"""ZooKeeper refuses larger nodes, and larger transactions (``jute.maxbuffer``). Bytes."""
MOST_PROBLEMS: Final = 1_000
"""Nodes that are reported by name at one time."""
_TOGETHER: Final = 100
"""Nodes that are written in one transaction, and the bytes in them: well below what a request may have."""
_BYTES_TOGETHER: Final = 400_000
MOST_CHILDREN: Final = 50_000
"""Nodes below one that are read. No installation has more."""


class Nodes:
    """Every method raises :class:`~wormhole.model.errors.CoordinationLost` when contact is missing."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self.problems: dict[str, ConfigError] = {}
        """Nodes that hold no valid record, by path; each was left out (or its last good form kept) and logged once."""

    async def children(self, path: str, changed: Watcher | None = None) -> list[str]:
        """Names below ``path``, sorted; none when there is no such node (``changed`` then fires when there is)."""
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
                    hint="find out who makes them, and remove what nobody needs",
                    code="record-too-large",
                ),
            )
            return sorted(names)[:MOST_CHILDREN]
        self.problems.pop(path, None)
        return sorted(names)

    async def get(self, path: str, changed: Watcher | None = None) -> bytes | None:
        """What the node holds, ``None`` when there is no such node (``changed`` then fires when there is)."""
        found = await self._read(path, changed)
        return None if found is None else found[0]

    async def get_all(self, paths: Sequence[str]) -> list[bytes | None]:
        """:meth:`get` for many nodes, asked together."""
        answers = await self.session.call_together("read nodes", [_getting(path) for path in paths])
        return [None if isinstance(answer, NoNodeError) else bytes(answer[0]) for answer in answers]

    async def _read(self, path: str, changed: Watcher | None) -> tuple[bytes, int] | None:
        """What the node holds, and the session that made it: 0 for a node that stays."""
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
        """Whether everybody has some right at the node; false when there is none."""
        try:
            rights, _ = await self.session.call(f"look at {path}", lambda client: client.get_acls_async(path))
        except NoNodeError:
            return False
        return any(one.id.scheme == "world" for one in rights)

    async def sync(self) -> None:
        """What is read from now on is no older than this call: a server may lag behind the leader."""
        await self.session.call("sync", lambda client: client.sync_async("/"))

    async def version(self, path: str) -> int:
        """How often the node was written since it was made; 0 when there is no such node."""
        stat: Any = await self.session.call(f"look at {path}", lambda client: client.exists_async(path))
        return 0 if stat is None else int(stat.version)

    async def ensure(self, path: str) -> None:
        """Make the node, empty, and those above it, where they are missing."""
        await self.session.call(f"make {path}", lambda client: client.ensure_path_async(path))

    async def put(self, path: str, data: bytes) -> None:
        """Write the node, made where it is missing.

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
        """Delete the node; nothing where there is none."""
        with contextlib.suppress(NoNodeError):
            await self.session.call(f"remove {path}", lambda client: client.delete_async(path))

    async def remove_below(self, path: str) -> None:
        """Delete all below the node: of masses so many at one time, and the rest in another call."""
        found: list[str] = []
        left = await self._below(path)
        while left:
            found.append(left.pop())
            below = await self._below(found[-1])
            left += below
            if len(found) >= MOST_CHILDREN and not below:  # else nothing of what was found can be deleted yet
                break
        for one in reversed(found):
            try:
                await self.remove(one)
            except ConfigError as error:
                if not isinstance(error.__cause__, NotEmptyError):  # else it is not empty yet
                    raise

    async def _below(self, path: str) -> list[str]:
        return [f"{path}/{name}" for name in await self.children(path)]

    async def put_all(self, nodes: Mapping[str, bytes], fence: str = "") -> None:
        """:meth:`put` for many small nodes, in as few requests as it takes.

        ``fence``: the path of a node without which none is written. When it is missing,
        :class:`~wormhole.model.errors.CoordinationLost` is raised; requests before it had their effect.
        """
        for some in _groups(nodes):
            for path, data in some.items():
                _check_size(path, data)
            together = (len(some) > 1 or bool(fence)) and (
                await self._put_together(some, set(), fence) is None
                or await self._put_together(some, await self._lacking(some), fence) is None
            )
            if not together:
                # Another process makes or removes some of them, or one is refused: the error says which.
                for path, data in some.items():
                    await (self._put_fenced(path, data, fence) if fence else self.put(path, data))

    async def _put_fenced(self, path: str, data: bytes, fence: str) -> None:
        """:meth:`put` as long as the node ``fence`` is there."""
        while error := await self._put_together({path: data}, await self._lacking({path: data}), fence):
            if not isinstance(error, NoNodeError | NodeExistsError):  # else made or removed meanwhile
                raise refused(f"write {path}", self.session.settings, error)

    async def _put_together(
        self, nodes: Mapping[str, bytes], lacking: Collection[str], fence: str
    ) -> KazooException | None:
        """Write all of them in one transaction, or none; the reason, if none were."""

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
        """Those of the nodes that are missing; what is above them is made."""
        there = set()
        for folder in sorted({path.rpartition("/")[0] for path in nodes}):
            await self.ensure(folder)
            names = await self.session.call(f"list {folder}", _listing(folder))
            there |= {f"{folder}/{name}" for name in names}
        return nodes.keys() - there

    async def each(self, items: Iterable[Any], ask: Callable[[Any], Awaitable[_T | None]]) -> list[_T]:
        """``ask`` for every item at once (the session bounds how many are in flight); ``None`` is left out."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_caught(ask(item))) for item in items]
        results = [task.result() for task in tasks]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if result is not None and not isinstance(result, BaseException)]

    async def record(self, path: str, parse: Callable[[bytes], _T], next_step: str = "") -> _T | None:
        """What ``parse`` makes of the node now; see :meth:`parsed`. A node that its maker closed to us is left out as
        one that is not valid.
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
        """:meth:`record` of a node that goes with the process that made it, watched. One that stays was written by
        hand, or copied with a whole tree, and stands for no process: it is left out. ``nobodys``: the next step
        then. One of a session for which ``left`` is true is left out too.
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
        """Report a node that its maker closed to us. Raises ``error`` if it is another one."""
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
        """What ``parse`` makes of the node; ``None`` if it is missing or not valid (see :attr:`problems`).

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
        """Keep a problem, and log it once; of many some, for each node may be a problem of its own."""
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
        """What ``read`` finds, now and after every change of what it watched, until ``stopped()``; silent without
        contact.

        Raises :class:`~wormhole.model.errors.ConfigError` when the first reading is refused. A later refusal is logged
        once: what was read last stays true until rights are given back.
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
    """What goes into one transaction."""
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
    # Inside a TaskGroup an error would come out as a group; callers want the error itself.
    try:
        return await question
    except Exception as error:  # noqa: BLE001 - handed on by the caller
        return error
