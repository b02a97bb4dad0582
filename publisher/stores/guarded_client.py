"""The ZooKeeper client of a publisher's stores. It writes only while this publisher owns its log.

Every write is a transaction. Its first operation checks that the owner's claim on the log still exists
(:meth:`GuardedClient.guard`). So late requests of a former owner write nothing.

ZooKeeper closes the connection after a request that is too large, which looks like lost contact. So the client measures
each transaction, and refuses a transaction that is too large.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from kazoo.exceptions import KazooException, NoNodeError, RolledBackError, RuntimeInconsistency

from wormhole.config import CoordinatorConfig
from wormhole.coordination.kazoo_client import (
    ANSWERS,
    LOST_ERRORS,
    after_refusal,
    connect_blocking,
    disconnect_blocking,
    lost,
    new_client,
)
from wormhole.model.errors import CoordinationLost, MarkerStoreError

__all__ = [
    "MOST_BYTES",
    "RACES",
    "Ask",
    "Fill",
    "GuardedClient",
    "TooLargeError",
    "creating",
    "deleting",
    "getting",
    "has",
    "setting",
]

RACES: Final = 20
"""The most attempts of a write. An attempt fails if another process wrote meanwhile. Because of epochs, two writers of
one flow conflict a few times at most."""
_OVERTAKEN: Final = (*ANSWERS, RolledBackError, RuntimeInconsistency)

MOST_BYTES: Final = 1_000_000
"""The most bytes of one request. ZooKeeper refuses requests over 1 MiB (``jute.maxbuffer``)."""
_BYTES_TOGETHER: Final = 400_000
"""The most bytes of one request that writes several nodes, so that other requests are served in between."""
_WRITES_TOGETHER: Final = 100

_REQUEST_BYTES: Final = 8 + 9  # a request's number and kind, and the end of its operations
_OPERATION_BYTES: Final = 9 + 4 + 4  # an operation's head, the length of its path, a version or flags
_LENGTH_BYTES: Final = 4  # the length in front of content
_RIGHTS_BYTES: Final = (
    256  # the largest access list of a node that a publisher makes: for operators, publishers and other clients
)

Ask = Callable[[Any], Any]
Fill = Callable[[Any], None]
"""A function that adds operations to a kazoo transaction. It is called several times: to measure, and to send."""


class TooLargeError(MarkerStoreError):
    """A transaction that is too large for ZooKeeper. It was not sent. ``size``: bytes of its request."""

    def __init__(self, what: str, size: int) -> None:
        super().__init__(
            f"{what}: the request is too large with {size:,} bytes; ZooKeeper takes {MOST_BYTES:,} at most",
            hint="report this as a bug",
        )
        self.size = size


class GuardedClient:
    """One ZooKeeper session. Methods block and are thread-safe.

    Each method that sends a request raises :class:`~wormhole.model.errors.CoordinationLost` if ZooKeeper does not
    answer, and :class:`~wormhole.model.errors.MarkerStoreError` if ZooKeeper refuses the request.
    """

    def __init__(self, settings: CoordinatorConfig) -> None:
        self._settings = settings
        self._mutex = threading.Lock()
        self._fence: Callable[[], str] = lambda: ""
        self._claimed = False
        self._put_back = ""
        self._report: Callable[[str], object] = lambda reason: None
        self.kazoo: Any = None

    def open(self) -> None:
        """Connect; idempotent."""
        with self._mutex:
            if self.kazoo is None:
                client = new_client(self._settings)
                connect_blocking(client, self._settings)
                self.kazoo = client

    def close(self) -> None:
        """Disconnect; idempotent."""
        with self._mutex:
            client, self.kazoo = self.kazoo, None
            if client is not None:
                disconnect_blocking(client)

    # -- who may write

    def guard(self, fence: Callable[[], str], put_back: Callable[[str], object] = lambda reason: None) -> None:
        """Write only while this publisher's claim on the log exists. ``fence``: returns the path of the claim's node.

        Before the first claim the path is empty, and writes check nothing. An empty path after a claim means that the
        claim was given up, and writes are refused. ``put_back``: called once, from any thread, with the reason if
        ZooKeeper turns out to hold an older state than this process has seen.
        """
        self._fence, self._report = fence, put_back

    def refuse_older(self, reason: str) -> CoordinationLost:
        """The error for a ZooKeeper that holds an older state than this process has seen. Later writes are refused,
        because they would build on a state that ZooKeeper lacks.
        """
        if not self._put_back:
            self._put_back = reason
            self._report(reason)
        return _older(self._put_back)

    def _checked(self) -> str:
        """The path that a write checks; empty for no check. Raises :class:`~wormhole.model.errors.CoordinationLost`."""
        fence = self._fence()
        if self._put_back:
            raise _older(self._put_back)
        if not fence and self._claimed:
            raise _claim_gone()
        self._claimed = bool(fence)
        return fence

    # -- questions

    def ask(self, what: str, ask: Ask) -> Any:
        """The answer to a request. ``what``: the request in words, for errors. Raises kazoo's errors in ``ANSWERS``."""
        return self.ask_all(what, [ask])[0]()

    def ask_all(self, what: str, asks: Iterable[Ask]) -> list[Callable[[], Any]]:
        """Send all requests at once. Each returned function waits for one answer, and behaves like :meth:`ask`."""
        client = self.kazoo
        if client is None:
            raise MarkerStoreError("the marker store is not open", hint="call open() first")
        if not client.connected:
            raise lost(what, self._settings)
        return [partial(self._answer, what, ask(client)) for ask in asks]

    def children(self, path: str) -> list[str]:
        """The sorted names of the node's children; empty if the node does not exist."""
        try:
            return sorted(self.ask(f"list {path}", lambda client: client.get_children_async(path)))
        except NoNodeError:
            return []

    def catch_up(self) -> None:
        """Wait until this session's server has the owner's claim, because it may lag behind the server through which
        the log was claimed."""
        if self._fence():
            self.ask("sync", lambda client: client.sync_async("/"))

    # -- writes

    def transact(self, what: str, fill: Fill) -> list[Exception]:
        """Run a transaction with the operations of ``fill``.

        Returns the failures that another process's write caused: kazoo's ``ANSWERS`` and their consequences. The list
        is empty after a commit. Raises :class:`~wormhole.model.errors.CoordinationLost` if this publisher's claim on
        the log is gone, and :class:`TooLargeError`.
        """
        return self.transact_all(what, [fill])[0]

    def transact_all(self, what: str, fills: Sequence[Fill]) -> list[list[Exception]]:
        """Run many transactions like :meth:`transact`. They are sent together and executed in this order."""
        fence = self._checked()
        for fill in fills:
            if (size := _request_bytes(fence) + _bytes_of(fill)) > MOST_BYTES:
                raise TooLargeError(what, size)
        answers = self.ask_all(what, [partial(_committing, fence, fill) for fill in fills])
        return [self._failures(what, fence, answer()) for answer in answers]

    def transact_grouped(self, what: str, fills: Iterable[Fill]) -> Iterator[list[Exception]]:
        """Run many fills in as few transactions as possible, one transaction after the other.

        Yields for each fill, in this order, the failures of its transaction. A fill that is too large alone is not sent
        and fails with :class:`TooLargeError`. A transaction is sent only when its first result is taken, so the caller
        has to take all results.
        """
        for group in _groups(fills, _request_bytes(self._fence())):
            try:
                failures = self.transact(what, partial(_filled, group))
            except TooLargeError as error:  # such a group has only one fill
                failures = [error]
            for _ in group:
                yield failures

    def check(self) -> None:
        """Raises :class:`~wormhole.model.errors.CoordinationLost` if this publisher's claim on the log is gone."""
        if self._checked():
            self.transact("check the claim on the log", lambda transaction: None)

    def make(self, folders: Collection[str]) -> None:
        """Create missing nodes without content, and missing nodes above them."""
        if not folders:
            return
        paths = sorted(folders)
        made = self.transact_all("make folders", [creating(path) for path in paths])
        orphans = [path for path, failures in zip(paths, made, strict=True) if has(failures, NoNodeError)]
        if orphans:
            self.make({path.rpartition("/")[0] for path in orphans})
            self.make(orphans)

    # -- errors

    def failure(self, what: str, error: Exception) -> MarkerStoreError:
        """The error for a request that ZooKeeper refuses."""
        return MarkerStoreError(
            f"ZooKeeper {self._settings.zookeeper} refuses to {what}: {type(error).__name__} {error}".rstrip(),
            hint=after_refusal(self._settings, error),
            code="coordination-refused",
        )

    def too_many_races(self, what: str) -> MarkerStoreError:
        """The error after :data:`RACES` failed attempts of a write."""
        return MarkerStoreError(
            f"another process keeps writing {what} in ZooKeeper {self._settings.zookeeper}",
            hint="two publishers serve the same log with the same epoch: end one of them",
            code="already-running",
        )

    def _answer(self, what: str, asked: Any) -> Any:
        try:
            return asked.get(timeout=self._settings.session_timeout)
        except LOST_ERRORS as error:
            raise lost(what, self._settings, error) from error
        except ANSWERS:
            raise
        except KazooException as error:
            raise self.failure(what, error) from error

    def _failures(self, what: str, fence: str, results: Sequence[Any]) -> list[Exception]:
        if fence and isinstance(results[0], NoNodeError):
            raise _claim_gone()
        failures = [result for result in results if isinstance(result, Exception)]
        for failure in failures:
            if not isinstance(failure, _OVERTAKEN):
                raise self.failure(what, failure) from failure
        return failures


def has(failures: Sequence[Exception], kind: type[Exception]) -> bool:
    """Whether a transaction failed with an error of that kind."""
    return any(isinstance(failure, kind) for failure in failures)


def _groups(fills: Iterable[Fill], begin: int) -> Iterator[list[Fill]]:
    """Group as many fills as fit into one request. ``begin``: bytes that every request needs."""
    group: list[Fill] = []
    size = begin
    for fill in fills:
        more = _bytes_of(fill)
        if group and (len(group) == _WRITES_TOGETHER or size + more > _BYTES_TOGETHER):
            yield group
            group, size = [], begin
        group.append(fill)
        size += more
    if group:
        yield group


def _filled(fills: Sequence[Fill], transaction: Any) -> None:
    for fill in fills:
        fill(transaction)


class _Measure:
    """A substitute for a kazoo transaction that adds up the sizes of its operations."""

    def __init__(self) -> None:
        self.size = 0

    def create(self, path: str, value: bytes = b"") -> None:
        self.size += _OPERATION_BYTES + len(path.encode()) + _LENGTH_BYTES + len(value) + _RIGHTS_BYTES

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        self.size += _OPERATION_BYTES + len(path.encode()) + _LENGTH_BYTES + len(value)

    def delete(self, path: str, version: int = -1) -> None:
        self.size += _OPERATION_BYTES + len(path.encode())

    check = delete


def _bytes_of(fill: Fill) -> int:
    measure = _Measure()
    fill(measure)
    return measure.size


def _request_bytes(fence: str) -> int:
    """The size of a transaction that only checks the node ``fence``."""
    return _REQUEST_BYTES + (_OPERATION_BYTES + len(fence.encode()) if fence else 0)


def _claim_gone() -> CoordinationLost:
    return CoordinationLost(
        "this publisher's claim on the log is gone: another one may own it",
        hint="nothing is to be done: it serves the log again once it owns it; `wormholectl publishers` names the owner",
        code="owner-elsewhere",
    )


def _older(reason: str) -> CoordinationLost:
    return CoordinationLost(
        f"ZooKeeper was put back to an older state: {reason}",
        hint="nothing is to be done: everything is read again, and what came after that state is delivered again",
        code="coordination-restored",
    )


def _committing(fence: str, fill: Fill, client: Any) -> Any:
    transaction = client.transaction()
    if fence:
        transaction.check(fence, -1)
    fill(transaction)
    return transaction.commit_async()


def getting(path: str) -> Ask:
    """Reads a node's content and state."""
    return lambda client: client.get_async(path)


def creating(path: str, data: bytes = b"") -> Fill:
    """Makes a node."""
    return lambda transaction: transaction.create(path, data)


def setting(path: str, data: bytes, version: int = -1) -> Fill:
    """Writes a node if it is at ``version``; -1: at any version."""
    return lambda transaction: transaction.set_data(path, data, version)


def deleting(path: str) -> Fill:
    """Deletes a node."""
    return lambda transaction: transaction.delete(path)
