"""One shard's transactions in the application's database: one connection, one transaction at a time.

::

    ASSIGNED   [ row read under a lock; epoch raised; committed ]
    callback   [ open = nonce; savepoint;  callback, callback, ...  datamarker: savepoint released; marker stored ]

Each pair of brackets is one transaction. :mod:`~subscriber_sdk.transactional.marker_row` decides from a row where
delivery begins.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NoReturn, TypeVar

from subscriber_sdk.subscriber import KeptMarker, ShardNotice
from subscriber_sdk.transactional import sql
from subscriber_sdk.transactional.marker_row import MarkerRow, after_refusal, row_key, row_of, start_of
from subscriber_sdk.transactional.store import Session, Store, settled
from wormhole.model.errors import TargetRefused, TargetUnavailable, WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.wire.markers import marker_to_bytes
from wormhole.wire.update import Update

__all__ = ["ShardTransactions"]

log = logging.getLogger("subscriber_sdk")

C = TypeVar("C")


class ShardTransactions(Generic[C]):
    """The transactions of one shard, over all its epochs. A lock lets calls of several threads or tasks take turns.

    Methods raise :class:`~wormhole.model.errors.TargetUnavailable` when the shard has to be assigned again, and
    :class:`~wormhole.model.errors.TargetRefused` when it has to halt.
    """

    def __init__(self, store: Store[C], shard: str) -> None:
        self._store = store
        self._shard = shard
        self._turn = store.turn()
        self._application = ""
        self._key = b""
        self._session: Session[C] | None = None
        self._stored: MarkerRow | None = None  # the row in the table; None: unknown until the next ASSIGNED
        self._confirmed = 0, 0  # epoch and version of the last row that was stored
        self._nonce: bytes | None = None  # for the open transaction; None: no transaction is open
        self._letters: list[str] = []  # dead letters that the open transaction applied
        self._among_letters = False  # whether dead letters may still come, which precede all other updates of an epoch

    async def assigned(self, notice: ShardNotice) -> KeptMarker | None:
        """Begin an epoch. Returns the datamarker at which delivery begins; ``None``: at the publisher's datamarker.

        Raises :class:`~wormhole.model.errors.EpochRefused` if the shard has been in a later epoch.
        """
        async with self._turn:
            await self._end()
            self._application, self._key, self._stored = notice.application, row_key(notice), None
            try:
                return await self._started(notice)
            except BaseException:
                await self._end()  # the row is locked
                raise

    async def call(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Call the handler with the connection, within the transaction."""
        async with self._turn:
            return await self._call(callback, *arguments)

    async def deliver(self, callback: Callable[..., Any], update: Update) -> None:
        """Call the handler with an update. A dead letter whose effects are stored is skipped."""
        async with self._turn:
            if self._is_new(update):
                await self._call(callback, update)

    async def deliver_all(self, callback: Callable[..., Any], updates: list[Update]) -> None:
        """Call the handler with several updates, without dead letters whose effects are stored."""
        async with self._turn:
            if self._among_letters:
                updates = [update for update in updates if self._is_new(update)]
            if updates:
                await self._call(callback, updates)

    async def deliver_rows(self, callback: Callable[..., Any], batch: Any, replayed: bool) -> None:
        """Call the handler with a ``pyarrow.RecordBatch``, without dead letters whose effects are stored."""
        async with self._turn:
            if self._among_letters and replayed:
                columns = (batch.column(name).to_pylist() for name in ("_place", "_tx", "_index"))
                batch = batch.filter(
                    [
                        self._is_new_at(f"{tx}:{index}", LogPosition.from_bytes(place[: LogPosition.SIZE]))
                        for place, tx, index in zip(*columns, strict=True)
                    ]
                )
            if batch.num_rows:
                await self._call(callback, batch)

    async def commit(self, marker: Datamarker) -> None:
        """Commit everything since the last datamarker, and ``marker`` with it."""
        async with self._turn:
            stored = self._known()
            raw = marker_to_bytes(marker)
            if self._nonce is None and raw == stored.marker:
                return  # an idle flow offers the same datamarker again
            await self._begin()
            session, nonce = self._session, self._nonce
            assert session is not None
            after = stored.advanced(marker, self._letters)
            values = {**self._mine(), "nonce": nonce, "marker": raw, "letters": _joined(after.letters)}
            try:
                await session.execute(sql.UNMARK, {})
                changed = await session.execute(sql.STORE, values)
            except Exception as error:  # noqa: BLE001 - whatever the driver raises: the transaction cannot be committed
                await self._refused(error)
            if changed != 1:
                await self._refused(None)
            self._stored, self._nonce = None, None  # the stored row is not known until COMMIT is answered
            try:
                await session.commit()
            except Exception as error:
                log.warning("shard %s: COMMIT was not answered (%r); its row is read", self._shard, error)
                if not await self._holds(after):
                    raise self._away("the last COMMIT had no effect") from error
            self._stored, self._confirmed = after, (after.epoch, after.version)
            self._letters.clear()
            if raw != stored.marker:
                self._among_letters = False

    async def rolled_back(self, to: Datamarker) -> None:
        """Roll the transaction back. The updates after ``to`` are delivered again."""
        async with self._turn:
            await self._roll_back()
            if self._stored is not None and self._stored.marker != marker_to_bytes(to):
                self._stored = None  # a commit succeeded, and its acknowledgement did not

    async def revoked(self) -> None:
        """The epoch is over."""
        async with self._turn:
            self._stored = None
            await self._end()

    def replaying(self) -> None:
        """Note that a replay of older updates begins: an update before the datamarker is no longer a dead letter."""
        self._among_letters = False

    # --- inside a turn ---

    async def _started(self, notice: ShardNotice) -> KeptMarker | None:
        with self._unavailable("cannot be read"):
            session = await self._transaction()
            row = await self._read(session)
        start = start_of(row, notice, confirmed=self._confirmed)
        values: dict[str, Any] = {
            "flow": self._key,
            "epoch": start.row.epoch,
            "version": start.row.version,
            "move": start.row.move,
            "marker": start.row.marker,
            "letters": _joined(start.row.letters),
        }
        with self._unavailable("cannot be written"):
            if row is None:
                names = {name: getattr(notice, name) for name in ("application", "dataset", "log", "shard")}
                await session.execute(sql.INSERT, {**values, **names, "open": None})
            else:
                await session.execute(sql.UPDATE, values)
            await session.commit()
        self._confirmed = start.row.epoch, start.row.version
        if start.halt is not None:
            raise start.halt
        self._stored, self._among_letters = start.row, True
        return start.have

    async def _call(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        await self._begin()
        session = self._session
        assert session is not None
        try:
            with session.in_use():
                result = await settled(callback(*arguments, session.connection))
        except Exception as error:
            if not session.usable:
                raise self._away("the connection was lost") from error
            raise
        if session.failed:
            raise WormholeError(
                f"{getattr(callback, '__qualname__', callback)} returned although a statement of its transaction "
                "failed, so the transaction cannot be committed",
                code="callback-wrong",
                hint="let the driver's exception out of the callback, or run the statement in a savepoint",
            )
        return result

    def _is_new(self, update: Update) -> bool:
        return not self._among_letters or not update.replayed or self._is_new_at(update.id, update.position)

    def _is_new_at(self, update_id: str, position: LogPosition) -> bool:
        """Whether the effects of an update are not stored yet. Effects of a dead letter may be stored already."""
        stored = self._known()
        if update_id in stored.letters or update_id in self._letters:
            return False
        if position <= stored.datamarker.order:  # the place of its transaction's end
            self._letters.append(update_id)
        return True

    def _known(self) -> MarkerRow:
        if self._stored is None:
            raise self._away("what it stored is read again")
        return self._stored

    def _mine(self) -> dict[str, Any]:
        stored = self._known()
        return {"flow": self._key, "epoch": stored.epoch, "version": stored.version}

    async def _begin(self) -> None:
        """Begin the transaction unless one is open. The row stays locked until its end."""
        if self._nonce is not None:
            return
        values = {**self._mine(), "nonce": (nonce := secrets.token_bytes(16))}
        with self._unavailable("cannot be written"):
            try:
                changed = await self._opened(values)
            except Exception:
                if self._session is None or self._session.usable:
                    raise
                changed = await self._opened(values)  # the idle connection was closed, so another one is opened
        if changed != 1:
            await self._refused(None)
        self._nonce = nonce

    async def _opened(self, values: sql.Values) -> int:
        session = await self._transaction()
        changed = await session.execute(sql.OPEN, values)
        await session.execute(sql.MARK, {})
        return changed

    async def _connected(self) -> Session[C]:
        """The connection. The first call for a connection makes the table, and checks that its engine has
        transactions."""
        if self._session is not None and not self._session.usable:
            await self._close()
        if self._session is None:
            session = self._session = await self._store.connect()
            await self._check_table(session)
        return self._session

    async def _transaction(self) -> Session[C]:
        """Begin a transaction whose waits are bounded."""
        session, store = await self._connected(), self._store
        await session.begin()
        for statement in store.dialect.bounds(store.dialect.begun, store.timeout):
            await session.execute(statement, {})
        return session

    async def _check_table(self, session: Session[C]) -> None:
        dialect = self._store.dialect
        await session.begin()
        for statement in dialect.bounds(dialect.connected, self._store.timeout):
            await session.execute(statement, {})
        found = await session.row(dialect.engine, {})
        if found is None:
            for statement in filter(None, (dialect.alone, dialect.create)):
                await session.execute(statement, {})
            found = await session.row(dialect.engine, {})
        await session.commit()
        if found is None or found[0] not in dialect.engines:
            raise TargetRefused(
                f"the table wormhole_marker is of engine {found and found[0]}, which has no transactions",
                code="target-refused",
                hint="give it an engine with transactions, and the application's own tables too",
            )

    async def _read(self, session: Session[C]) -> MarkerRow | None:
        found = await session.row(sql.READ + self._store.dialect.locking, {"flow": self._key})
        return None if found is None else row_of(found, self._shard)

    async def _refused(self, error: Exception | None) -> NoReturn:
        """Raise the error that explains why a statement of this class failed, or did not find the expected row."""
        mine = self._known()
        lost = self._session is None or not self._session.usable
        await self._roll_back()
        self._stored = None
        with self._unavailable("cannot be read"):
            session = await self._transaction()
            row = await self._read(session)
            await session.rollback()
        refusal = after_refusal(row, mine, self._application, self._shard)
        if refusal is None and lost:
            refusal = self._away("the connection was lost")
        elif refusal is None:
            self._stored = mine
            refusal = WormholeError(
                f"the database rolled the transaction of shard {self._shard} back",
                code="callback-wrong",
                hint="let the driver's exceptions out of the callbacks; do not end the transaction in one",
            )
        raise refusal from error

    async def _holds(self, row: MarkerRow) -> bool:
        """Whether a transaction whose COMMIT was not answered is stored. Waits until the server has ended that
        transaction, which locks the row."""
        await self._close()
        with self._unavailable("cannot be read"):
            session = await self._transaction()
            found = await self._read(session)
            await session.rollback()
        return found == row

    async def _roll_back(self) -> None:
        self._nonce = None
        self._letters.clear()
        if self._session is None:
            return
        try:
            await self._session.rollback()
        except Exception as error:  # noqa: BLE001 - the server rolls back what is left of a closed connection
            log.debug("shard %s: rollback: %r", self._shard, error)
            await self._close()

    async def _end(self) -> None:
        await self._roll_back()
        await self._close()

    async def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                await session.close()
            except Exception as error:  # noqa: BLE001 - it is not used again
                log.debug("shard %s: close: %r", self._shard, error)

    @contextmanager
    def _unavailable(self, what: str) -> Iterator[None]:
        """Turn errors of the driver in statements of this class into ``TargetUnavailable``: no update caused them."""
        try:
            yield
        except WormholeError:
            raise
        except Exception as error:
            raise self._store.refusal(error) or self._away(f"wormhole_marker {what}: {error!r}") from error

    def _away(self, why: str) -> TargetUnavailable:
        return TargetUnavailable(f"the target of shard {self._shard}: {why}")


def _joined(letters: tuple[str, ...]) -> bytes:
    return "\n".join(letters).encode()
