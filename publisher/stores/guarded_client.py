"""The ZooKeeper client of a publisher's stores: what is asked, and what is written while this publisher owns its log.

Every write is a transaction. Its first operation checks that the claim of the log's owner is still there
(:meth:`GuardedClient.guard`), so that a former owner writes nothing, whatever it believes and however late its request
arrives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
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

__all__ = ["RACES", "Ask", "Fill", "GuardedClient", "has"]

RACES: Final = 20
"""Each lost race means that somebody else wrote; with epochs, two writers of one flow meet a few times at most."""
_OVERTAKEN: Final = (*ANSWERS, RolledBackError, RuntimeInconsistency)

Ask = Callable[[Any], Any]
Fill = Callable[[Any], None]
"""Adds operations to a transaction of kazoo."""


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

    def guard(self, fence: Callable[[], str]) -> None:
        """Write from now on only while the node is there whose path ``fence`` returns: our claim on the log.

        An empty path checks nothing before the first claim. After a claim it means that the claim was given up: then
        nothing is written any more.
        """
        self._fence = fence

    def _checked(self) -> str:
        """The path that a write checks; empty: none. Raises :class:`~wormhole.model.errors.CoordinationLost`."""
        fence = self._fence()
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
        was done. Raises :class:`~wormhole.model.errors.CoordinationLost` when our claim on the log is gone.
        """
        return self.transact_all(what, [fill])[0]

    def transact_all(self, what: str, fills: Sequence[Fill]) -> list[list[Exception]]:
        """:meth:`transact` for many transactions, asked together and done in this order."""
        fence = self._checked()
        answers = self.ask_all(what, [partial(_committing, fence, fill) for fill in fills])
        return [self._failures(what, fence, answer()) for answer in answers]

    def check(self) -> None:
        """Raises :class:`~wormhole.model.errors.CoordinationLost` when our claim on the log is gone."""
        if self._checked():
            self.transact("check the claim on the log", lambda transaction: None)

    def make(self, folders: Collection[str]) -> None:
        """Make the nodes, empty, and those above them, where they are missing."""
        if not folders:
            return
        paths = sorted(folders)
        made = self.transact_all("make folders", [_creating(path) for path in paths])
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
        )

    def too_many_races(self, what: str) -> MarkerStoreError:
        """The error for what :data:`RACES` attempts did not write."""
        return MarkerStoreError(
            f"somebody else keeps writing {what} in ZooKeeper {self._settings.zookeeper}",
            hint="two publishers serve the same log with the same epoch: end one of them",
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


def _claim_gone() -> CoordinationLost:
    return CoordinationLost(
        "this publisher's claim on the log is gone: another one may own it",
        hint="nothing is to be done: it serves the log again once it owns it; `wormholectl publishers` names the owner",
    )


def _committing(fence: str, fill: Fill, client: Any) -> Any:
    transaction = client.transaction()
    if fence:
        transaction.check(fence, -1)
    fill(transaction)
    return transaction.commit_async()


def _creating(path: str) -> Fill:
    return lambda transaction: transaction.create(path, b"")
