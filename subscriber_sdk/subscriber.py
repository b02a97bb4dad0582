"""The class that an application overrides, and the values that its callbacks get."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from subscriber_sdk.backfill import Key, KeyRange, ScanEnd
from wormhole.model.errors import TargetRefused
from wormhole.model.loss import LossKind
from wormhole.model.position import Datamarker, LastAck
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Value
from wormhole.wire.update import Update

if TYPE_CHECKING:
    import pyarrow

__all__ = ["AckLater", "DataLoss", "FlowHalted", "KeptMarker", "LossDecision", "NoticeKind"]
__all__ += ["ParkRefused", "SchemaChange", "ShardNotice", "Subscriber"]


class NoticeKind(Enum):
    """What happened to a shard."""

    ASSIGNED = "assigned"
    """The shard's updates are delivered to this subscriber from now on."""
    REVOKED = "revoked"
    """No further update of the shard is delivered in this epoch. Running callbacks have ended."""
    REPLAY_BEGIN = "replay_begin"
    """A replay of older updates follows."""
    REPLAY_END = "replay_end"
    """The replay is over; new updates follow."""


@dataclass(slots=True, frozen=True)
class ShardNotice:
    """A change of a shard's assignment to this subscriber, or of its replay.

    ``marker``: at ASSIGNED the place where delivery begins, at REVOKED the last acknowledged place (``None``: none in
    this epoch). ``cause``: the reason in words; may be empty. ``rewound`` (at ASSIGNED): whether an operator or a
    replay set the shard back to ``marker``, so that the next updates were delivered before. A later marker that the
    callback returns is then ignored. ``rewound`` stays true until the next acknowledgement.

    ``move`` (at ASSIGNED): the number of the last move of the shard's datamarker, backwards or forwards, that was not
    an acknowledgement; 0: the datamarker was never moved, or the publisher is from an earlier release. The number is
    stored with the datamarker and only rises. An application that stores its own datamarker stores the number with it,
    and adopts ``marker`` when the notice has a higher number. ``acknowledged`` (at ASSIGNED): whether the shard's
    datamarker was ever acknowledged or moved. If so, an application that holds nothing of the shard lost its state.
    ``last_ack`` (at ASSIGNED): the shard's last acknowledgement; ``None``: there was none, or the publisher does not
    know it. See :meth:`was_set_back`.

    ``application``, ``dataset`` and ``log`` (at ASSIGNED): the publisher's names for the shard's application, dataset
    and log; comparisons of notices ignore them.
    ``generation`` (at ASSIGNED): the number of the flow's last backfill.

    ``latest`` (at REPLAY_BEGIN): whether the replay delivers only the last change of each key. A replay of an earlier
    release does not report it.
    """

    kind: NoticeKind
    shard: str
    epoch: int
    marker: Datamarker | None = None
    cause: str = ""
    rewound: bool = False
    move: int = 0
    acknowledged: bool = False
    last_ack: LastAck | None = field(default=None, compare=False)
    application: str = field(default="", compare=False)
    dataset: str = field(default="", compare=False)
    log: str = field(default="", compare=False)
    generation: int = field(default=0, compare=False)
    latest: bool = field(default=False, compare=False)

    def was_set_back(self, kept: KeptMarker) -> bool:
        """Whether the shard was acknowledged further than the state that the application stored with ``kept``. Then the
        state was replaced by an older copy, or lost its last writes. A move of the datamarker would pass over the loss.
        """
        return self.last_ack is not None and (kept.move, kept.marker.order) < self.last_ack


@dataclass(slots=True, frozen=True)
class KeptMarker:
    """The datamarker that an application stores with its state, together with ``move`` of its last ASSIGNED notice. See
    :meth:`Subscriber.on_shard_notice`.
    """

    marker: Datamarker
    move: int


@dataclass(slots=True, frozen=True)
class DataLoss:
    """A range of the log that was deleted before this flow received it.

    ``first_missing`` and ``last_missing``: logical positions of the source, inclusive, empty when unknown. ``resume``:
    where delivery continues if the application decides to continue; ``None`` if the publisher does not know the place.
    """

    shard: str
    epoch: int
    kind: LossKind
    first_missing: str
    last_missing: str
    resume: Datamarker | None
    message: str


@dataclass(slots=True, frozen=True)
class SchemaChange:
    """The next update of ``table`` in this shard has another schema than the one delivered before it.

    ``update_id``: the id of this next update. ``old``: ``None`` for the first update of a table in this epoch. Columns
    are compared by name, so a renamed column counts as a removed column and an added column. It may be that only the
    order of the columns changed.
    """

    shard: str
    epoch: int
    table: str
    update_id: str
    old: Schema | None
    new: Schema

    @property
    def added(self) -> tuple[Column, ...]:
        """The columns that ``old`` lacks, in the table's order."""
        return _lacking(self.old, self.new)

    @property
    def removed(self) -> tuple[Column, ...]:
        """The columns that ``new`` lacks."""
        return () if self.old is None else _lacking(self.new, self.old)

    @property
    def retyped(self) -> tuple[tuple[Column, Column], ...]:
        """The columns whose type changed, each as a pair of its old and its new definition."""
        old = {} if self.old is None else {column.name: column for column in self.old.columns}
        return tuple((old[c.name], c) for c in self.new.columns if c.name in old and old[c.name].type != c.type)

    @property
    def key_changed(self) -> bool:
        """Whether the columns of the key, or their order, changed; false if ``old`` is ``None``."""
        return self.old is not None and [c.name for c in self.old.key] != [c.name for c in self.new.key]


def _lacking(schema: Schema | None, other: Schema) -> tuple[Column, ...]:
    """The columns of ``other`` that ``schema`` lacks."""
    names = set() if schema is None else {column.name for column in schema.columns}
    return tuple(column for column in other.columns if column.name not in names)


class LossDecision(Enum):
    """What to do about a :class:`DataLoss`."""

    HALT = "halt"
    """The flow does not continue until the application or an operator decides."""
    CONTINUE = "continue"
    """Continue after the gap, because the application can do without the missing updates."""


@dataclass(slots=True, frozen=True)
class AckLater:
    """A return value of ``on_datamarker`` that postpones the acknowledgement, so that an application can make larger
    pieces of work durable.

    The callback is called again with the next marker, or with the same marker after ``seconds`` (a positive number) if
    no other arrived.
    """

    seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"AckLater({self.seconds}): a positive number of seconds is needed")


class ParkRefused(Exception):  # noqa: N818 - the publisher's answer
    """The publisher does not park the update. The message has the reason and the next step."""


@dataclass(slots=True, frozen=True)
class FlowHalted:
    """A flow whose retries are exhausted. It is halted at this subscriber until it restarts; all other flows continue.

    ``update_id``: the update whose callback failed; the first one if the callback got several, empty if another
    callback failed. ``attempts``: the number of tries. ``marker``: the last acknowledged place, where delivery begins
    again.
    """

    shard: str
    epoch: int
    update_id: str
    attempts: int
    marker: Datamarker
    cause: Exception

    @property
    def reason(self) -> str:
        """The reason that is sent to the publisher, without a next step, because its operators have other ones."""
        at = f" at update {self.update_id}" if self.update_id else ""
        if isinstance(self.cause, ParkRefused):
            return f"shard {self.shard} is halted{at}, which cannot be parked: {self.cause}"
        if isinstance(self.cause, TargetRefused):
            return f"shard {self.shard} is halted: {self.cause}"
        return f"shard {self.shard} is halted{at} after {self.attempts} attempts: {self.cause!r}"

    def __str__(self) -> str:
        if isinstance(self.cause, (ParkRefused, TargetRefused)):  # the message of these has the next step
            return self.reason
        return (
            f"{self.reason}. Next: mend the handler or the data, then restart this subscriber; delivery begins again "
            f"after {self.marker}"
        )


class Subscriber:
    """Override the callbacks that you need: with ``async def``, or with plain ``def`` to run in a thread.

    Exactly one of :meth:`on_update`, :meth:`on_updates` and :meth:`on_arrow` has to be overridden. Callbacks of one
    shard never overlap, except with ``concurrency`` > 1, for updates of different keys. Callbacks of different shards
    overlap. A callback that runs longer than ``handler_timeout`` is cancelled, which is a failure.
    """

    arrow_before: bool = False
    """Whether the batches of :meth:`on_arrow` also have the row before each change."""

    def on_update(self, update: Update) -> Awaitable[None] | None:
        """Process one update. Returning means that it is processed. Raising means rollback and retry."""
        return None

    def on_updates(self, batch: Sequence[Update]) -> Awaitable[None] | None:
        """Called instead of :meth:`on_update`, with several updates of one shard, in order, as they arrived from the
        network.

        A batch may hold several transactions, or a piece of one: see ``update.transaction`` and
        ``update.ends_transaction``.
        """
        return None

    def on_arrow(self, batch: pyarrow.RecordBatch) -> Awaitable[None] | None:
        """Called instead of :meth:`on_update`, with several updates of one shard as Arrow columns, one row for each, in
        order.

        A batch has one table. It ends before an update of another table or schema, or with a value of another type. See
        docs/arrow.md for the columns; ``BatchInfo.of(batch)`` has table, shard and key. It needs pyarrow, the extra
        ``arrow``.
        """
        return None

    def on_shard_notice(
        self, notice: ShardNotice
    ) -> Awaitable[Datamarker | KeptMarker | None] | Datamarker | KeptMarker | None:
        """A shard is assigned or revoked, or its replay begins or ends.

        At ASSIGNED an application that stores datamarkers with its own state returns its datamarker. Delivery begins
        there, unless the shard was set back (``notice.rewound``) and the datamarker is a later one. An application that
        also stores ``notice.move`` returns both as a :class:`KeptMarker`. Then delivery begins there unless the shard
        was moved since, backwards or forwards, and a move that is reported again is not repeated. An application that
        also stores epochs, for fencing, raises :class:`EpochRefused` with ``held_epoch`` if it holds a higher epoch
        than ``notice.epoch``, which happens after an older marker store was restored. The publisher then assigns the
        shard again in a higher epoch. The REVOKED notice comes before another subscriber may receive the shard, unless
        the connection was lost.
        """
        return None

    def on_schema(self, change: SchemaChange) -> Awaitable[None] | None:
        """The columns or the key of a table changed. Called before the first update with the new schema, and after
        every earlier update of the shard has been processed. Raising means rollback and retry.

        After each ASSIGNED this is also called before the first update of each table, with ``old`` ``None``.
        """
        return None

    def on_datamarker(self, marker: Datamarker) -> Awaitable[AckLater | None] | AckLater | None:
        """Make the application's work durable. Every update of ``marker.shard`` before ``marker`` is processed, and the
        marker is acknowledged when this returns.

        If this returns an :class:`AckLater`, the marker is not acknowledged. After a failure or a restart the updates
        since the last acknowledged marker are delivered again.
        """
        return None

    def on_rollback(self, to: Datamarker, cause: Exception) -> Awaitable[None] | None:
        """Discard work after ``to`` that is not durable. A callback failed with ``cause``, and the updates after ``to``
        are delivered again."""
        return None

    def on_range(self, keys: KeyRange) -> Awaitable[None] | None:
        """A backfill has delivered every existing row with one of these ``keys``. Rows with these keys that the
        application holds, and did not receive in this generation, no longer exist and may be deleted.

        Called when all earlier callbacks have returned, and before the next ``on_datamarker``. Raising means rollback
        and retry, so a range may be repeated. Not called for keys whose order only the database knows (text, for
        example), nor by a backfill with a filter of its own: see :meth:`on_scan_end`.
        """
        return None

    def on_scan_end(self, end: ScanEnd) -> Awaitable[None] | None:
        """A backfill has delivered every existing row of a table in one shard. Rows that were stamped with an earlier
        generation (``Update.generation``) no longer exist and may be deleted.

        This works for keys of every type. Otherwise it is like :meth:`on_range`.
        """
        return None

    def on_verify(
        self, table: str, shard: str, keys: Sequence[Key]
    ) -> Awaitable[Mapping[Key, Mapping[str, Value]]] | Mapping[Key, Mapping[str, Value]]:
        """Return the application's rows of ``table`` in ``shard`` with these ``keys``, which are as ``Update.key``: for
        each key the columns that the application keeps, with values as in ``Update.after``. Leave out keys that it does
        not hold.

        Called with at most 500 keys by ``wormholectl verify``, between updates, when all earlier callbacks have
        returned. Only returned columns are compared, and none that is ``UNAVAILABLE`` on either side. The comparison of
        the table ends with an error if the result has a column that the table does not have, or a key that was not
        requested. It also ends if this raises until the retries are exhausted. The flow continues. An application is
        verified only if it overrides this and :meth:`on_verify_keys`.
        """
        return {}

    def on_verify_keys(self, table: str, shard: str) -> Iterable[Key] | AsyncIterable[Key] | Awaitable[Iterable[Key]]:
        """Return every key of ``table`` that the application holds in ``shard``, in any order.

        A plain ``def`` returns an iterable, or is a generator, and is iterated in a thread. An ``async def`` may be an
        asynchronous generator. No other callback of the shard runs until the last key was returned. The time limit of a
        callback applies to each 1,000 keys.
        """
        return ()

    def on_data_loss(self, loss: DataLoss) -> Awaitable[LossDecision | None] | LossDecision | None:
        """Decide about a range that the log lost. Only CONTINUE lets the datamarker pass it; ``None`` means HALT."""
        return LossDecision.HALT

    def on_error(self, error: FlowHalted) -> Awaitable[None] | None:
        """Raise an alarm: retries are exhausted and one flow is halted. An exception from this is only logged."""
        return None
