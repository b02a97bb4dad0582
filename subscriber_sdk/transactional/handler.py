"""The base class of an application that writes its effects to a database."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from subscriber_sdk.backfill import Key, KeyRange, ScanEnd
from subscriber_sdk.subscriber import AckLater, DataLoss, FlowHalted, LossDecision, SchemaChange, ShardNotice
from wormhole.model.position import Datamarker
from wormhole.model.values import Value
from wormhole.wire.update import Update

if TYPE_CHECKING:
    import pyarrow

__all__ = ["TransactionalHandler"]

C = TypeVar("C")


class TransactionalHandler(Generic[C]):
    """The callbacks of :class:`~subscriber_sdk.Subscriber`, with the connection of the shard's transaction as last
    argument. Writes through ``connection`` happen exactly once. All other effects happen at least once.

    Override the callbacks that you need, with plain ``def`` for a blocking store, and with ``async def`` for an
    asynchronous one. Exactly one of :meth:`on_update`, :meth:`on_updates` and :meth:`on_arrow` has to be overridden. A
    callback neither commits nor rolls back. A callback may catch an exception of the driver only around a savepoint of
    its own.
    """

    arrow_before: bool = False
    """As ``Subscriber.arrow_before``."""
    state_only: bool = False
    """Whether the database's content depends only on the last state of each row, so that a replay may leave out earlier
    changes of a key. If false, a replay with ``--mode latest`` is refused."""

    def on_update(self, update: Update, connection: C) -> Awaitable[None] | None:
        """Process one update."""
        return None

    def on_updates(self, batch: Sequence[Update], connection: C) -> Awaitable[None] | None:
        """Process several updates of one shard, in order."""
        return None

    def on_arrow(self, batch: pyarrow.RecordBatch, connection: C) -> Awaitable[None] | None:
        """Process several updates of one table as Arrow columns."""
        return None

    def on_schema(self, change: SchemaChange, connection: C) -> Awaitable[None] | None:
        """Handle a change of the columns or the key of a table. In some databases DDL ends the transaction, so run it
        through another connection there."""
        return None

    def on_datamarker(self, marker: Datamarker, connection: C) -> Awaitable[AckLater | None] | AckLater | None:
        """The transaction is about to be committed with ``marker``. An :class:`AckLater` leaves it open."""
        return None

    def on_range(self, keys: KeyRange, connection: C) -> Awaitable[None] | None:
        """A backfill has delivered every existing row with one of these keys."""
        return None

    def on_scan_end(self, end: ScanEnd, connection: C) -> Awaitable[None] | None:
        """A backfill has delivered every existing row of a table in one shard."""
        return None

    def on_verify(
        self, table: str, shard: str, keys: Sequence[Key], connection: C
    ) -> Awaitable[Mapping[Key, Mapping[str, Value]]] | Mapping[Key, Mapping[str, Value]]:
        """Return the application's rows with these keys."""
        return {}

    def on_verify_keys(
        self, table: str, shard: str, connection: C
    ) -> Iterable[Key] | AsyncIterable[Key] | Awaitable[Iterable[Key]]:
        """Return every key that the application holds."""
        return ()

    def on_data_loss(self, loss: DataLoss, connection: C) -> Awaitable[LossDecision | None] | LossDecision | None:
        """The log lost a range."""
        return LossDecision.HALT

    def on_shard_notice(self, notice: ShardNotice) -> Awaitable[None] | None:
        """A shard was assigned, and its row is locked to its epoch; or it is revoked, or its replay begins or ends."""
        return None

    def on_rollback(self, to: Datamarker, cause: Exception) -> Awaitable[None] | None:
        """The transaction was rolled back: updates after ``to`` come again. Discard what you keep in memory."""
        return None

    def on_error(self, error: FlowHalted) -> Awaitable[None] | None:
        """A flow halted."""
        return None
