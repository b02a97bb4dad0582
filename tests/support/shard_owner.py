"""A process that has a shard, and keeps its effects in a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from subscriber_sdk import NoticeKind, ShardNotice
from subscriber_sdk.subscriber import KeptMarker
from subscriber_sdk.testing import marker_at
from subscriber_sdk.transactional import Store
from subscriber_sdk.transactional.shard import ShardTransactions
from subscriber_sdk.transactional.store import finish
from tests.support.transactional import run

__all__ = ["Owner"]

_ASSIGNED: Final = ShardNotice(NoticeKind.ASSIGNED, "s", 1, marker_at(0), application="a")


class Owner:
    """``store``: one whose drivers block. Methods raise what :class:`ShardTransactions` raises."""

    def __init__(self, store: Store[Any]) -> None:
        self.session: Any = None
        """The last connection's."""
        connect = store.connect

        async def noted() -> Any:
            self.session = await connect()
            return self.session

        store.connect = noted  # type: ignore[method-assign]
        self._shard: ShardTransactions[Any] = ShardTransactions(store, "s")

    def assigned(self, epoch: int) -> KeptMarker | None:
        """An epoch begins."""
        return finish(self._shard.assigned(replace(_ASSIGNED, epoch=epoch)))

    def run(self, statement: str) -> None:
        """An effect."""

        def effect(connection: Any) -> None:
            finish(run(connection, statement))

        finish(self._shard.call(effect))

    def commit(self, number: int) -> None:
        """The datamarker after this transaction."""
        finish(self._shard.commit(marker_at(number)))

    def fail(self, number: int) -> None:
        """A callback failed: what follows this transaction comes again."""
        finish(self._shard.rolled_back(marker_at(number)))

    def disconnect(self) -> None:
        """The connection is lost."""
        finish(self.session.close())

    def lose_an_answer(self, *, executed: bool) -> None:
        """The next COMMIT has its effect or not, and its answer does not come."""
        session = self.session
        commit = session.commit

        async def unanswered() -> None:
            session.commit = commit
            await (commit if executed else session.rollback)()
            raise ConnectionError("no answer")

        session.commit = unanswered

    def revoked(self) -> None:
        """The epoch is over."""
        finish(self._shard.revoked())
