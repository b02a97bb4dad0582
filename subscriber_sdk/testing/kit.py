"""Runs a subscriber in a test: with the real session, flows, acknowledgements and retries, but with a fake clock, and
without a server.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, Unpack

from subscriber_sdk.backfill import Key
from subscriber_sdk.options.subscriber_options import Options, SubscriberOptions, read_options
from subscriber_sdk.subscriber import FlowHalted, LossDecision, Subscriber
from subscriber_sdk.testing.backfill import as_key, chunk_end, key_of, key_schema, read_rows
from subscriber_sdk.testing.changes import Change, body_of
from subscriber_sdk.testing.clock import FakeTimeLoop, InlineExecutor
from subscriber_sdk.testing.letters import KitLetters
from subscriber_sdk.testing.publisher import ScriptedPublisher, frames, marker_at
from subscriber_sdk.testing.verification import Reports
from subscriber_sdk.work.flow_worker import FlowWorker
from subscriber_sdk.work.shards import Shards
from wormhole.model.errors import HandlerFailed, UsageError
from wormhole.model.loss import LossKind
from wormhole.model.position import Datamarker, LastAck, LogPosition
from wormhole.model.reads import read_source
from wormhole.model.schema import Schema
from wormhole.model.values import Value
from wormhole.model.verification import TableVerification, VerifyMode
from wormhole.wire.markers import marker_from_message, marker_to_message
from wormhole.wire.v1 import push_pb2
from wormhole.wire.verification import mode_to_message

__all__ = ["Kit", "KitFlow"]

_T = TypeVar("_T")
_ALONE = 500  # the most keys that one chunk reads alone
_AWAY = 100  # tries with an unavailable target after which the kit raises an error
_LOOK = 1.0  # seconds by the fake clock between two checks for tries with an unavailable target
_AHEAD = 1000  # added to the epoch when another process takes the shard, so that the replaced process has lower epochs
_LOSS = {
    LossKind.PURGED: push_pb2.DataLoss.PURGED,
    LossKind.NOT_LOGGED: push_pb2.DataLoss.NOT_LOGGED,
    LossKind.DIVERGED: push_pb2.DataLoss.DIVERGED,
}


class Kit:
    """The value of the fixture ``wormhole_kit``. Call :meth:`close` on a kit that you made yourself."""

    def __init__(self) -> None:
        self._loop = FakeTimeLoop()
        self._flows: list[KitFlow] = []

    @property
    def now(self) -> float:
        """Seconds by the fake clock. Waiting for a retry moves it."""
        return self._loop.time()

    def attach(
        self,
        subscriber: Subscriber,
        *,
        shard: str = "shop",
        on_failure: Literal["halt", "park"] = "halt",
        dead_letters: int = 1000,
        application: str = "test",
        **options: Unpack[SubscriberOptions],
    ) -> KitFlow:
        """Assign ``shard`` to ``subscriber`` from an empty log, as the publisher of ``application`` does. ``options``
        as for ``subscriber_sdk.run``.

        ``on_failure``: as in the application's configuration; ``dead_letters``: how many updates may be parked.
        """
        given: dict[str, object] = {"application": application, "id": "test", "listen": "127.0.0.1:1", **options}
        letters = KitLetters(dead_letters)
        flow = KitFlow(self, subscriber, shard, read_options(given, environ={}), letters, parks=on_failure == "park")
        self._flows.append(flow)
        flow.assign()
        return flow

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.run(asyncio.sleep(seconds))
        for flow in self._flows:
            flow._note_acks()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine of the test on the kit's loop, for example to read from an asynchronous client."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass  # the coroutine runs outside of this block, because its tracebacks would contain this error
        else:
            work.close()
            raise UsageError(
                "wormhole_kit has an event loop of its own, and this test already runs in one",
                hint="write the test as a plain def; coroutines of your own run with wormhole_kit.run(...)",
            )
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """End every flow; idempotent."""
        if self._loop.is_closed():
            return
        for flow in self._flows:
            flow.close()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


@dataclass(slots=True)
class _Transaction:
    """A numbered entry of the kit's log: a commit, or a chunk of existing rows with its end. ``chunk``: the number of
    the scan, and the number of the chunk.
    """

    number: int
    pieces: list[list[Change]]
    chunk: tuple[int, int] | None = None
    end: tuple[Schema, push_pb2.ChunkEnd] | None = None
    scan_end: tuple[str, int] | None = None
    """Table and rows."""
    compared: bool = False
    """Whether the entry is part of a verification."""


class KitFlow:
    """Sends the updates of one shard to one subscriber, step by step. Every method returns when the subscriber has
    nothing left to do.

    Methods raise :class:`~wormhole.model.errors.HandlerFailed`, with the callback's exception as cause, if the flow
    halted. They also raise it after 100 tries with an unavailable target, which production retries for ever.
    """

    def __init__(
        self, kit: Kit, subscriber: Subscriber, shard: str, options: Options, letters: KitLetters, *, parks: bool
    ) -> None:
        self._kit = kit
        self._subscriber = subscriber
        self._shard = shard
        self._options = options
        self._letters = letters
        self._parks = parks
        self._skip: list[str] = []
        self._shards = self._process()
        self._publisher: ScriptedPublisher | None = None
        self._worker: FlowWorker | None = None
        self._log: list[_Transaction] = []
        self._flow = 0
        self._batches = 0
        self._held = False
        self._incarnation = 1
        self._key_schemas: dict[str, Schema] = {}
        self._chunk = (0, 0)
        self._rows_read: dict[str, int] = {}
        self._verify = VerifyMode.NONE
        self._reports = Reports()
        self._move = 0
        self._moved_to = marker_at(0)
        self._went_back = False
        self._acks: dict[int, LogPosition] = {}  # the last acknowledgement after each move, by the move's number
        self.generation = 0
        """The generation of the last backfill."""
        self.epoch = 0
        self.datamarker = marker_at(0)
        """The last acknowledged place that the publisher stored."""
        self.halted: FlowHalted | None = None
        """Set when retries were exhausted."""
        self._given_up = 0  # the worker's tries with an unavailable target when the kit last raised that error
        self._replaced = False
        self.fenced = False
        """Whether the subscriber refused an epoch because another process has a later one."""

    @property
    def end(self) -> Datamarker:
        """The place after everything that was committed."""
        return marker_at(len(self._log))

    @property
    def updates(self) -> int:
        """The number of updates whose callback returned in this epoch, repeats included."""
        return self._worker.updates if self._worker is not None else 0

    @property
    def parked(self) -> list[str]:
        """Ids of the updates that are parked, in the order of the log."""
        return [letter.id for letter in self._letters.all()]

    def __repr__(self) -> str:
        return f"<KitFlow {self._shard} epoch {self.epoch}: {self.datamarker} acknowledged of {self.end}>"

    # --- what a publisher does ---

    def commit(self, *changes: Change, pieces: int = 1) -> None:
        """Commit ``changes`` as one transaction and push it, then a datamarker.

        ``pieces``: the number of batches in which the transaction is sent, as a large transaction is.
        """
        size = max(1, -(-len(changes) // pieces))
        transaction = _Transaction(
            len(self._log) + 1, [list(changes[i : i + size]) for i in range(0, len(changes), size)]
        )
        self._deliver(transaction)

    def backfill(self, table: str, rows: Iterable[Change], *, chunks: int = 1) -> None:
        """Run a backfill of ``table``, which holds ``rows`` (built with ``read``) and no others:
        :meth:`begin_backfill`, the rows in order in this number of ``chunks``, :meth:`end_scan`.
        """
        found = read_rows(table, rows)
        self.begin_backfill()
        self._chunks(table, found, chunks)
        self.end_scan(table)

    def verify(self, table: str, rows: Iterable[Change], *, repair: bool = False, chunks: int = 1) -> TableVerification:
        """Compare ``table``, which holds ``rows`` (built with ``read``) and no others, with the application's rows:
        :meth:`begin_verify`, the rows in order in this number of ``chunks``, :meth:`end_verify`. ``repair``: as
        ``wormholectl verify --repair``.
        """
        found = read_rows(table, rows)
        self.begin_verify(repair=repair)
        self._chunks(table, found, chunks)
        return self.end_verify(table, *found)

    def _chunks(self, table: str, found: list[Change], chunks: int) -> None:
        size = max(1, -(-len(found) // chunks))
        after: Key | None = None
        for begin in range(0, max(1, len(found)), size):
            part = found[begin : begin + size]
            until = None if begin + size >= len(found) else key_of(part[-1])
            self.chunk(table, *part, after=after, until=until)
            after = until

    def begin_backfill(self) -> None:
        """An operator requests existing rows, which begins a new generation and so a new epoch. Call :meth:`chunk` and
        :meth:`end_scan` for its parts, with commits in between.
        """
        self._begin(VerifyMode.NONE)

    def begin_verify(self, *, repair: bool = False) -> None:
        """An operator requests a comparison, which begins a new generation and so a new epoch. Call :meth:`chunk` and
        :meth:`end_verify` for its parts, with commits in between.
        """
        if not self._shards.abilities.verifies:
            raise UsageError(
                f"{type(self._subscriber).__name__} cannot be verified",
                hint="override on_verify and on_verify_keys (docs/subscriber.md#verify)",
                code="callback-wrong",
            )
        self._begin(VerifyMode.REPAIR if repair else VerifyMode.COMPARE)

    def end_verify(self, table: str, *rows: Change) -> TableVerification:
        """End the comparison of ``table``. Returns the findings since :meth:`begin_verify`, or since the epoch began.

        ``rows``: all existing rows. In a repair, the keys of any other rows of the application are read alone, as a
        publisher reads them.
        """
        self.end_scan(table)
        extra = self._reports.to_confirm(table)
        for begin in range(0, len(extra), _ALONE):
            keys = extra[begin : begin + _ALONE]
            self.chunk(table, *(row for row in rows if key_of(row) in keys), keys=keys)
        if extra:
            self.end_scan(table)
        return self._reports.of(table)

    def verification(self, table: str) -> TableVerification:
        """The findings about ``table`` so far, in this epoch."""
        return self._reports.of(table)

    def _begin(self, verify: VerifyMode) -> None:
        self._verify = verify
        self.generation += 1
        self._chunk = (self._chunk[0] + 1, 0)
        self._rows_read = {}
        self._anew()

    def chunk(
        self,
        table: str,
        *rows: Change,
        after: Value | Key | None = None,
        until: Value | Key | None = None,
        keys: Iterable[Value | Key] = (),
        except_keys: Iterable[Value | Key] = (),
        narrowed: bool = False,
    ) -> None:
        """Deliver the ``rows`` that exist with keys above ``after`` up to ``until``, then the end of that range, then a
        datamarker.

        ``after`` ``None``: from the table's first key on. ``until`` ``None``: up to its last key. ``keys``: keys that
        were read alone. ``except_keys``: keys that changes touched meanwhile. ``narrowed``: whether the backfill has a
        filter of its own. The subscriber gets no range if the keys are neither integers nor bytes.
        """
        found = read_rows(table, rows)
        alone, left_out = [as_key(key) for key in keys], [as_key(key) for key in except_keys]
        low, high = (None if key is None else as_key(key) for key in (after, until))
        given = [key for key in (*alone, low, high, *left_out) if key is not None]
        schema = self._key_schemas[table] = key_schema(table, found, given, self._key_schemas.get(table))
        end = chunk_end(
            schema, after=low, until=high, keys=alone, except_keys=left_out, narrowed=narrowed, rows=len(found)
        )
        scan, number = self._chunk
        self._chunk = (scan, number + 1)
        self._rows_read[table] = self._rows_read.get(table, 0) + len(found)
        pieces = [found] if found else []
        self._deliver(self._read(_Transaction(len(self._log) + 1, pieces, (scan, number + 1), (schema, end))))

    def end_scan(self, table: str) -> None:
        """End the scan of ``table``, every row of which was delivered in this generation."""
        rows = self._rows_read.get(table, 0)
        self._deliver(self._read(_Transaction(len(self._log) + 1, [], scan_end=(table, rows))))

    def crash_and_redeliver(self, transactions: int = 1, *, subscriber: Subscriber | None = None) -> None:
        """Kill the subscriber's process before its last acknowledgements were stored, and start it again.

        The last ``transactions`` are delivered again, as in production: in a new epoch, marked ``replayed``.
        ``subscriber``: the object of the new process; by default the same object, with its state.
        """
        self._stop()
        self._subscriber = subscriber or self._subscriber
        self._shards = self._process()
        lost = min(self.datamarker, marker_at(max(0, len(self._log) - transactions)), key=_number)
        self.datamarker = max(self._moved_to, lost, key=_number)
        if self.datamarker == self._moved_to:
            self._acks.pop(self._move, None)
        elif self._move in self._acks:
            self._acks[self._move] = self.datamarker.order
        self.assign()

    def hand_over(self, subscriber: Subscriber) -> KitFlow:
        """Assign the shard to another process, with the object ``subscriber``, while the present process still runs and
        is not informed. Returns the flow of the present process, with a publisher and a log of its own.
        """
        replaced = copy.copy(self)
        replaced._log, replaced._acks = list(self._log), dict(self._acks)
        replaced._replaced = True
        self._kit._flows.append(replaced)
        self._subscriber = subscriber
        self._shards = self._process()
        self._publisher = None
        self._given_up = 0
        self.epoch += _AHEAD
        self.assign()
        return replaced

    def cut(self) -> None:
        """Break the connection. The subscriber continues to run. :meth:`assign` connects again."""
        if self._publisher is not None:
            self._call(self._publisher.vanish)
            self._publisher = None
            self._settle()

    def revoke(self, cause: str = "the test takes the shard") -> None:
        """Revoke the shard. Returns when the subscriber has released it."""
        publisher = self._connected()
        self._send(frames.revoke(self._flow, self.epoch, cause))
        self._settle()
        if not publisher.take("released"):
            raise AssertionError(f"{self!r}: the subscriber did not release the shard")
        self._call(publisher.vanish)
        self._publisher = None

    def assign(self) -> None:
        """Assign the shard, in a new epoch, from the stored datamarker, and push what follows."""
        if self._publisher is None:
            self._publisher = ScriptedPublisher(self._shards, self._options)
            self._send(frames.hello(self._options.application, self._options.instance))
        publisher = self._publisher
        self.epoch += 1
        self._flow += 1
        self._batches = 0
        self._held = False
        self.halted = None
        self._reports = Reports()
        follows = self._after(self.datamarker)
        at_move = self.datamarker == self._moved_to  # false after a later acknowledgement
        self._send(
            frames.assign(
                self._flow,
                self.epoch,
                self._options.application,
                self._shard,
                self.datamarker,
                replayed=bool(follows),
                skip=self._skip,
                park=self._parks,
                parked=self._letters.rows(),
                rewound=self._went_back and at_move,
                move=self._move,
                acknowledged=self._move > 0 or not at_move,
                last_ack=max(map(LastAck._make, self._acks.items()), default=None),
                generation=self.generation,
                verify=mode_to_message(self._verify),
            )
        )
        self._worker = next(worker for worker in self._shards.workers() if worker.epoch.number == self.epoch)
        epoch = self.epoch
        self._settle()
        if self.epoch != epoch:
            return  # the assignment was refused, and the shard was assigned in a later epoch
        for frame in publisher.take("accepted"):
            if frame.accepted.HasField("have"):
                self._note_ack(marker_from_message(frame.accepted.have))
                follows = self._after(self.datamarker)
        if not self._redeliver():
            return
        if follows:
            self._push(follows, replayed=True)

    def retry(self, key: str = "") -> None:
        """Deliver parked updates of the row ``key`` (``users:7``; empty: all) again, as at an operator's request:
        before all other updates, in order.
        """
        self._letters.retry(key)
        self._anew()

    def discard(self, key: str = "") -> None:
        """Discard the parked updates of the row ``key`` (empty: all)."""
        self._letters.discard(key)
        self._anew()

    def skip(self, update_id: str) -> None:
        """Have an update skipped from now on."""
        self._skip.append(update_id)
        self._anew()

    def move(self, to: Datamarker) -> None:
        """Move the datamarker, as ``wormholectl markers set``: backwards, or forwards up to :attr:`end`. What follows
        ``to`` is delivered in a new epoch. A crash does not undo the move.
        """
        self._release()
        self._went_back = _number(to) < _number(self.datamarker)
        self._move, self._moved_to, self.datamarker = self.epoch + 1, to, to
        self.assign()

    def replay(self, transactions: int, *, latest: bool = False) -> None:
        """Replay the last ``transactions``: a new epoch, REPLAY_BEGIN, the updates again, REPLAY_END. ``latest``:
        REPLAY_BEGIN announces only the last change of each key, although every update is sent."""
        again = self._log[-transactions:] if transactions else []
        kept, self._log = self._log, self._log[: len(self._log) - len(again)]
        self.datamarker = self.end
        self.assign()
        self._log = kept
        self._notice(push_pb2.ShardNotice.REPLAY_BEGIN, latest=latest)
        self._push([replace(one, end=None, scan_end=None) for one in again], replayed=True)
        self._notice(push_pb2.ShardNotice.REPLAY_END)

    def lose(
        self, first: str = "", last: str = "", *, kind: LossKind = LossKind.PURGED, message: str = "the log was purged"
    ) -> LossDecision:
        """Report that the log has a gap after everything committed so far. Returns the subscriber's decision.

        After HALT the flow is held: later commits wait until :meth:`assign`.
        """
        publisher = self._connected()
        self._log.append(_Transaction(len(self._log) + 1, []))  # the place after the gap
        loss = push_pb2.DataLoss(
            flow=self._flow,
            epoch=self.epoch,
            kind=_LOSS[kind],
            first_missing=first,
            last_missing=last,
            resume=marker_to_message(self.end),
            message=message,
        )
        self._send(push_pb2.PublisherFrame(data_loss=loss))
        self._settle()
        (answer,) = publisher.take("loss_decision")
        if not answer.loss_decision.proceed:
            self._held = True
            return LossDecision.HALT
        self._send(frames.datamarker(self._flow, self.epoch, self.end))
        self._settle()
        return LossDecision.CONTINUE

    def close(self) -> None:
        """End the flow; idempotent."""
        self._stop()

    # --- inside ---

    def _process(self) -> Shards:
        # No random part is subtracted from a wait, so that the fake clock shows the policy's own numbers.
        return Shards(self._subscriber, self._options, chance=lambda: 0.0, pool=InlineExecutor())

    def _connected(self) -> ScriptedPublisher:
        if self._publisher is None:
            raise UsageError(f"shard {self._shard} is not assigned just now", hint="call assign() first")
        return self._publisher

    def _send(self, *given: push_pb2.PublisherFrame) -> None:
        publisher = self._connected()
        self._call(lambda: publisher.send(*given))

    def _call(self, act: Callable[..., None], *arguments: object) -> None:
        """Call ``act`` on the loop, because frames may begin tasks there."""

        async def within() -> None:
            act(*arguments)

        self._kit.run(within())

    def _read(self, transaction: _Transaction) -> _Transaction:
        """Mark a chunk as part of the present backfill or verification."""
        return replace(transaction, compared=self._verify is not VerifyMode.NONE)

    def _deliver(self, transaction: _Transaction) -> None:
        self._log.append(transaction)
        for piece in transaction.pieces:
            self._key_schemas.update({change.schema.table: change.schema for change in piece if change.schema.key})
        if self._publisher is not None and not self._held:
            self._push([transaction], replayed=False)

    def _after(self, marker: Datamarker) -> list[_Transaction]:
        return self._log[_number(marker) :]

    def _push(self, transactions: list[_Transaction], *, replayed: bool) -> None:
        publisher, epoch, sent = self._connected(), self.epoch, 0
        for transaction in transactions:
            if transaction.compared and self._verify is VerifyMode.NONE:
                transaction = _Transaction(transaction.number, [])  # rows that were compared are not sent again
            first = 0
            for i, piece in enumerate(transaction.pieces):
                self._call(publisher.teach, [change.schema for change in piece])
                self._batches += 1
                scan, number = transaction.chunk or (0, transaction.number)
                body = body_of(
                    piece,
                    source=read_source(scan) if scan else "test",
                    number=number,
                    first_index=first,
                    ends=i == len(transaction.pieces) - 1,
                    committed_at_us=0 if scan else 1_700_000_000_000_000 + transaction.number,
                    offset=transaction.number,
                )
                first += len(piece)
                if sent and sent + len(body) > self._options.credit:
                    self._settle()  # so that the subscriber returns the credit
                    sent = 0
                    if self.epoch != epoch:
                        return  # everything after the stored datamarker was sent again, with this transaction
                sent += len(body)
                self._send(frames.batch(self._flow, self.epoch, self._batches, body, replayed=replayed))
            if transaction.end is not None:
                schema, end = transaction.end
                self._call(publisher.teach, [schema])
                self._send(frames.chunk_end(self._flow, self.epoch, end))
            if transaction.scan_end is not None:
                table, rows = transaction.scan_end
                self._send(frames.scan_end(self._flow, self.epoch, table, self.generation, rows))
            self._send(frames.datamarker(self._flow, self.epoch, marker_at(transaction.number)))
        self._settle()

    def _anew(self) -> None:
        """Begin a new epoch, in which an operator's change takes effect."""
        self._release()
        self.assign()

    def _release(self) -> None:
        if self._publisher is not None and self.halted is None:
            self.revoke("an operator asked for it")

    def _redeliver(self) -> bool:
        """Send the updates that have to be delivered again. Returns whether all were sent in this epoch."""
        epoch = self.epoch
        while (kept := self._letters.next()) is not None:
            letter, parcel = kept
            self._call(self._connected().teach, [Schema.from_canonical(parcel.schema)])
            self._batches += 1
            self._send(
                frames.batch(self._flow, epoch, self._batches, parcel.body, replayed=True),
                frames.datamarker(self._flow, epoch, self.datamarker),
            )
            self._settle()
            if self.epoch != epoch:
                return False  # the updates were sent again in a new epoch
            self._letters.delivered(letter)
        return True

    def _notice(self, kind: push_pb2.ShardNotice.Kind, *, latest: bool = False) -> None:
        notice = push_pb2.ShardNotice(flow=self._flow, epoch=self.epoch, kind=kind, latest=latest)
        self._send(push_pb2.PublisherFrame(notice=notice))
        self._settle()

    def _settle(self) -> None:
        """Let the subscriber finish its work, store its acknowledgements, and answer its requests."""
        while True:
            self._kit.run(self._rest())
            publisher = self._publisher
            if publisher is None:
                return
            parks = publisher.take("park")
            for frame in parks:
                refused = self._letters.park(frame.park)
                if refused is not None:
                    self._send(frames.parked(self._flow, self.epoch, frame.park.update_id, refused))
            if not parks:
                break
        self._note_acks()
        for frame in publisher.take("verified"):
            self._reports.add(frame.verified)
        for frame in publisher.take("goodbye"):
            raise AssertionError(f"the subscriber ended the stream: {frame.goodbye.message}")
        for frame in publisher.take("failed"):
            if frame.failed.reason == push_pb2.Failed.RESEND:
                self.assign()
                return
            if frame.failed.reason == push_pb2.Failed.STALE_EPOCH:
                if self._replaced:
                    self.fenced, self._held = True, True
                    return
                self.epoch = frame.failed.held_epoch
                self.assign()
                return
            self.halted = halted = self._worker.epoch.halted if self._worker is not None else None
            raise HandlerFailed(frame.failed.message, shard=self._shard) from (halted.cause if halted else None)

    async def _rest(self) -> None:
        """Wait until the subscriber has nothing left to do."""
        settled = asyncio.ensure_future(self._shards.settled())
        try:
            while not settled.done():
                await asyncio.wait([settled], timeout=_LOOK)
                worker = self._worker
                if worker is not None and (tries := worker.postponed - self._given_up) >= _AWAY:
                    away = worker.epoch.away
                    self._given_up = worker.postponed
                    raise HandlerFailed(
                        f"the target is still unavailable after {tries} tries: {away}", shard=self._shard
                    ) from away
        finally:
            settled.cancel()

    def _note_acks(self) -> None:
        for frame in self._publisher.take("ack") if self._publisher is not None else ():
            self._note_ack(marker_from_message(frame.ack.marker))

    def _note_ack(self, marker: Datamarker) -> None:
        if marker.order > self.datamarker.order or self._move in self._acks:
            self._acks[self._move] = marker.order
        self.datamarker = marker

    def _stop(self) -> None:
        """Kill the process, which then finishes, releases and reports nothing."""
        for worker in self._shards.workers():
            self._call(worker.kill)
        self._kit.run(self._shards.close())
        self._publisher = None
        self._given_up = 0


def _number(marker: Datamarker) -> int:
    """The number of the last transaction before ``marker``."""
    return int(marker.delivered)
