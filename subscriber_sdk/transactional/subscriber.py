"""Runs a handler within one transaction of the application's database between two datamarkers."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import isasyncgenfunction
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from subscriber_sdk.backfill import Key, KeyRange, ScanEnd
from subscriber_sdk.router import is_async
from subscriber_sdk.subscriber import (
    AckLater,
    DataLoss,
    FlowHalted,
    KeptMarker,
    LossDecision,
    NoticeKind,
    SchemaChange,
    ShardNotice,
    Subscriber,
)
from subscriber_sdk.transactional.handler import TransactionalHandler
from subscriber_sdk.transactional.shard import ShardTransactions
from subscriber_sdk.transactional.store import Store, finish, settled
from wormhole.model.errors import TargetRefused, UsageError
from wormhole.model.position import Datamarker
from wormhole.model.values import Value
from wormhole.wire.update import Update

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Transactional"]

C = TypeVar("C")

_ALWAYS: Final = ("on_shard_notice", "on_datamarker", "on_rollback", "on_error")
_OF_HANDLER: Final = (
    "on_update",
    "on_updates",
    "on_arrow",
    "on_schema",
    "on_range",
    "on_scan_end",
    "on_verify",
    "on_data_loss",
)
_KEYS: Final = 1000  # keys that are read at one time from on_verify_keys


class Transactional(Subscriber, Generic[C]):
    """A subscriber whose effects in one database happen exactly once: they are committed with the datamarker.

    Raises :class:`~wormhole.model.errors.UsageError` for a handler whose callbacks do not fit the store: a store that
    blocks needs plain ``def``, another one ``async def``.
    """

    def __init__(self, handler: TransactionalHandler[C], store: Store[C]) -> None:
        if not isinstance(handler, TransactionalHandler) or not isinstance(store, Store):
            raise UsageError(
                f"Transactional({handler!r:.100}, {store!r:.100}): a TransactionalHandler and a store are expected",
                code="callback-wrong",
            )
        self._handler = handler
        self._store = store
        self._shards: dict[str, ShardTransactions[C]] = {}
        self._overridden = _overridden(handler)
        _check(handler, store, self._overridden)
        self.arrow_before = handler.arrow_before
        # The SDK calls only callbacks that are set here, so callbacks that the handler does not override cost nothing.
        for name in (*_ALWAYS, *self._overridden.intersection(_OF_HANDLER)):
            self._set(name, getattr(self, f"_{name}"))
        if "on_verify_keys" in self._overridden:
            setattr(self, "on_verify_keys", self._keys if store.blocking else self._keys_async)  # noqa: B010

    def _set(self, name: str, work: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        if not self._store.blocking:
            setattr(self, name, work)
            return

        @wraps(getattr(Subscriber, name))
        def blocking(*arguments: Any) -> Any:
            return finish(work(*arguments))

        setattr(self, name, blocking)

    def _of(self, shard: str) -> ShardTransactions[C]:
        if shard not in self._shards:
            self._shards[shard] = ShardTransactions(self._store, shard)
        return self._shards[shard]

    async def _on_update(self, update: Update) -> None:
        await self._of(update.shard).deliver(self._handler.on_update, update)

    async def _on_updates(self, batch: Sequence[Update]) -> None:
        await self._of(batch[0].shard).deliver_all(self._handler.on_updates, list(batch))

    async def _on_arrow(self, batch: pyarrow.RecordBatch) -> None:
        from subscriber_sdk.arrow import BatchInfo

        info = BatchInfo.of(batch)
        await self._of(info.shard).deliver_rows(self._handler.on_arrow, batch, info.replayed)

    async def _on_schema(self, change: SchemaChange) -> None:
        await self._of(change.shard).call(self._handler.on_schema, change)

    async def _on_range(self, keys: KeyRange) -> None:
        await self._of(keys.shard).call(self._handler.on_range, keys)

    async def _on_scan_end(self, end: ScanEnd) -> None:
        await self._of(end.shard).call(self._handler.on_scan_end, end)

    async def _on_verify(self, table: str, shard: str, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Value]]:
        found: Mapping[Key, Mapping[str, Value]]
        found = await self._of(shard).call(self._handler.on_verify, table, shard, keys)
        return found

    def _keys(self, table: str, shard: str) -> Iterator[Key]:
        """The handler's keys. Each portion is read under the shard's lock, because the SDK iterates from several
        threads."""
        flow = self._of(shard)
        source: Iterator[Key] = iter(finish(flow.call(self._handler.on_verify_keys, table, shard)))
        while portion := finish(flow.call(lambda _: list(islice(source, _KEYS)))):
            yield from portion

    async def _keys_async(self, table: str, shard: str) -> AsyncIterator[Key]:
        listed = await self._of(shard).call(self._handler.on_verify_keys, table, shard)
        if isinstance(listed, AsyncIterable):
            async for key in listed:
                yield key
        else:
            for key in listed:
                yield key

    async def _on_data_loss(self, loss: DataLoss) -> LossDecision | None:
        decision: LossDecision | None = await self._of(loss.shard).call(self._handler.on_data_loss, loss)
        return decision

    async def _on_datamarker(self, marker: Datamarker) -> AckLater | None:
        flow = self._of(marker.shard)
        if "on_datamarker" in self._overridden:
            answer = await flow.call(self._handler.on_datamarker, marker)
            if isinstance(answer, AckLater):
                if answer.seconds >= self._store.timeout:
                    raise UsageError(
                        f"AckLater({answer.seconds:g}) leaves the transaction open for longer than the store's "
                        f"timeout = {self._store.timeout:g} s",
                        code="callback-wrong",
                    )
                return answer
        await flow.commit(marker)
        return None

    async def _on_rollback(self, to: Datamarker, cause: Exception) -> None:
        await self._of(to.shard).rolled_back(to)
        await settled(self._handler.on_rollback(to, cause))

    async def _on_shard_notice(self, notice: ShardNotice) -> KeptMarker | None:
        flow, have = self._of(notice.shard), None
        match notice.kind:
            case NoticeKind.ASSIGNED:
                have = await flow.assigned(notice)
            case NoticeKind.REVOKED:
                await flow.revoked()
            case NoticeKind.REPLAY_BEGIN:
                if notice.latest and not self._handler.state_only:
                    raise _needs_every_change(type(self._handler).__name__, notice.shard)
                flow.replaying()
        await settled(self._handler.on_shard_notice(notice))
        return have

    async def _on_error(self, error: FlowHalted) -> None:
        # A flow may stay halted for days, and the locks of its transaction would block an operator's repair.
        await self._of(error.shard).revoked()
        await settled(self._handler.on_error(error))


def _needs_every_change(handler: str, shard: str) -> TargetRefused:
    return TargetRefused(
        f"the replay delivers only the last change of each key of shard {shard}, and {handler} is not state_only",
        code="latest-refused",
        hint="cancel the replay and begin it with --mode log; if the effects depend on a row's last state alone, set "
        f"{handler}.state_only = True and restart the subscriber",
    )


def _overridden(handler: TransactionalHandler[C]) -> frozenset[str]:
    names = (*_ALWAYS, *_OF_HANDLER, "on_verify_keys")
    base = TransactionalHandler
    return frozenset(
        name for name in names if getattr(getattr(handler, name), "__func__", None) is not getattr(base, name)
    )


def _check(handler: TransactionalHandler[C], store: Store[C], overridden: Iterable[str]) -> None:
    for name in overridden:
        # An asynchronous generator is as good as a coroutine.
        given = is_async(getattr(handler, name)) or isasyncgenfunction(getattr(handler, name))
        if given == store.blocking:
            raise UsageError(
                f"{type(handler).__name__}.{name} is {'async def' if given else 'a plain def'}, and the connections of "
                f"{type(store).__name__} need {'a plain def' if given else 'async def'}",
                code="callback-wrong",
            )
