"""The ZooKeeper client of a publisher's stores: what is asked, and what is written while this publisher owns its log.

Every write is a transaction. Its first operation checks that the claim of the log's owner is still there
(:meth:`GuardedClient.guard`), so that a former owner writes nothing, whatever it believes and however late its request
arrives.

ZooKeeper closes the connection of a client whose request is too large, which looks like lost contact. So each
transaction is measured before it is sent, and one that is too large is refused.
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
"""Each lost race means that somebody else wrote; with epochs, two writers of one flow meet a few times at most."""
_OVERTAKEN: Final = (*ANSWERS, RolledBackError, RuntimeInconsistency)

MOST_BYTES: Final = 1_000_000
"""One request takes at most this. ZooKeeper refuses those over 1 MiB (``jute.maxbuffer``)."""
_BYTES_TOGETHER: Final = 400_000
"""One request that writes several nodes takes at most this, so that other requests are served in between."""
_WRITES_TOGETHER: Final = 100

_REQUEST_BYTES: Final = 8 + 9  # its number and kind, and the end of its operations
_OPERATION_BYTES: Final = 9 + 4 + 4  # its head, the length of the path, a version or flags
_LENGTH_BYTES: Final = 4  # the length in front of content
_RIGHTS_BYTES: Final = 256  # at most, of a node that a publisher makes: the operator's, the publisher's, everybody's

Ask = Callable[[Any], Any]
Fill = Callable[[Any], None]
"""Adds operations to a transaction of kazoo. It is called more than once, to measure them before they are sent."""


class TooLargeError(MarkerStoreError):
    """A transaction that ZooKeeper does not take. It was not sent. ``size``: bytes of its request."""

    def __init__(self, what: str, size: int) -> None:
        super().__init__(
            f"{what}: the request is too large with {size:,} bytes; ZooKeeper takes {MOST_BYTES:,} at most",
            hint="report this as a bug",
        )
        self.size = size


class GuardedClient:
    """One session. Methods block, and may be called from several threads.

    Each that asks raises :class:`~wormhole.model.errors.CoordinationLost` when ZooKeeper does not answer, and
    :class:`~wormhole.model.errors.MarkerStoreError` when it refuses.
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
        """Write from now on only while the node is there whose path ``fence`` returns: our claim on the log.

        An empty path checks nothing before the first claim. After a claim it means that the claim was given up: then
        nothing is written any more. ``put_back`` gets the reason, once, when ZooKeeper turns out to hold an older state
        than we have seen, our claim included; from any thread.
        """
        self._fence, self._report = fence, put_back

    def refuse_older(self, reason: str) -> CoordinationLost:
        """ZooKeeper holds an older state than we have seen: nothing is written any more, for it would be on top of what
        is not there. The error.
        """
        if not self._put_back:
            self._put_back = reason
            self._report(reason)
        return _older(self._put_back)

    def _checked(self) -> str:
        """The path that a write checks; empty: none. Raises :class:`~wormhole.model.errors.CoordinationLost`."""
        fence = self._fence()
        if self._put_back:
            raise _older(self._put_back)
        if not fence and self._claimed:
            raise _claim_gone()
        self._claimed = bool(fence)
        return fence

    # -- questions

    def ask(self, what: str, ask: Ask) -> Any:
        """The answer. Raises those of kazoo's errors that are answers: ``ANSWERS``."""
        return self.ask_all(what, [ask])[0]()

    def ask_all(self, what: str, asks: Iterable[Ask]) -> list[Callable[[], Any]]:
        """Ask everything at once; each of the results waits for its answer or raises, as :meth:`ask` does."""
        client = self.kazoo
        if client is None:
            raise MarkerStoreError("the marker store is not open", hint="call open() first")
        if not client.connected:
            raise lost(what, self._settings)
        return [partial(self._answer, what, ask(client)) for ask in asks]

    def children(self, path: str) -> list[str]:
        """Names below the node, sorted; none when there is no such node."""
        try:
            return sorted(self.ask(f"list {path}", lambda client: client.get_children_async(path)))
        except NoNodeError:
            return []

    def catch_up(self) -> None:
        """What an owner reads from now on is no older than its claim: the server that this session is at may lag behind
        the one through which the log was claimed."""
        if self._fence():
            self.ask("sync", lambda client: client.sync_async("/"))

    # -- writes

    def transact(self, what: str, fill: Fill) -> list[Exception]:
        """Everything that ``fill`` adds to a transaction is done, or nothing of it.

        Returns what failed because somebody else wrote: kazoo's ``ANSWERS`` and what follows from them; nothing when it
        was done. Raises :class:`~wormhole.model.errors.CoordinationLost` when our claim on the log is gone, and
        :class:`TooLargeError`.
        """
        return self.transact_all(what, [fill])[0]

    def transact_all(self, what: str, fills: Sequence[Fill]) -> list[list[Exception]]:
        """:meth:`transact` for many transactions, asked together and done in this order."""
        fence = self._checked()
        for fill in fills:
            if (size := _request_bytes(fence) + _bytes_of(fill)) > MOST_BYTES:
                raise TooLargeError(what, size)
        answers = self.ask_all(what, [partial(_committing, fence, fill) for fill in fills])
        return [self._failures(what, fence, answer()) for answer in answers]

    def transact_grouped(self, what: str, fills: Iterable[Fill]) -> Iterator[list[Exception]]:
        """:meth:`transact` for many, as many at a time as go into one transaction, one transaction after the other.

        Yields for each in this order what its transaction failed by. One that is too large alone is not sent: it fails
        by :class:`TooLargeError`, and the others are done. They are sent as they are asked for: take all.
        """
        for group in _groups(fills, _request_bytes(self._fence())):
            try:
                failures = self.transact(what, partial(_filled, group))
            except TooLargeError as error:  # only one that is alone in its group can be that large
                failures = [error]
            for _ in group:
                yield failures

    def check(self) -> None:
        """Raises :class:`~wormhole.model.errors.CoordinationLost` when our claim on the log is gone."""
        if self._checked():
            self.transact("check the claim on the log", lambda transaction: None)

    def make(self, folders: Collection[str]) -> None:
        """Make the nodes, empty, and those above them, where they are missing."""
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
        """The error for what :data:`RACES` attempts did not write."""
        return MarkerStoreError(
            f"somebody else keeps writing {what} in ZooKeeper {self._settings.zookeeper}",
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
    """Whether a transaction failed by an error of that kind."""
    return any(isinstance(failure, kind) for failure in failures)


def _groups(fills: Iterable[Fill], begin: int) -> Iterator[list[Fill]]:
    """As many at a time as go into one request, of which ``begin`` bytes are the same in each."""
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
    """Takes the place of a transaction of kazoo: adds up the bytes that its operations have in a request."""

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
    """The size of a transaction whose only operation is the check of ``fence``."""
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
    """Asks for what a node holds, and its state."""
    return lambda client: client.get_async(path)


def creating(path: str, data: bytes = b"") -> Fill:
    """Makes a node."""
    return lambda transaction: transaction.create(path, data)


def setting(path: str, data: bytes, version: int = -1) -> Fill:
    """Writes a node that is in ``version``; -1: in any."""
    return lambda transaction: transaction.set_data(path, data, version)


def deleting(path: str) -> Fill:
    """Deletes a node."""
    return lambda transaction: transaction.delete(path)
