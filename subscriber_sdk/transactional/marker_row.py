"""Decides from a shard's row in the application's table ``wormhole_marker`` where delivery begins. Pure.

The row alone decides which effects of the shard are stored. At ASSIGNED the row is read under a lock
(:func:`start_of`). After a later failure the row is read again: either it is unchanged, or the shard has to be assigned
again (:func:`after_refusal`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from subscriber_sdk.subscriber import KeptMarker, ShardNotice
from wormhole.model.errors import EpochRefused, ProtocolError, TargetRefused, TargetUnavailable
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_from_bytes, marker_to_bytes

__all__ = ["MarkerRow", "Start", "after_refusal", "row_key", "row_of", "start_of"]

_MOST_LETTERS: Final = 1000
"""The most ids of dead letters that a row keeps: as many as a flow may park by default."""


@dataclass(frozen=True, slots=True)
class MarkerRow:
    """A shard's row in the table.

    ``epoch``: the last epoch that had the shard. ``version`` rises with each write. ``move``: the number of the last
    move of the datamarker that was adopted. ``marker``: the datamarker, in bytes; empty if the target had no row
    although its flow had advanced. In that case ``version`` is the number of the flow's last backfill at that time.
    ``open``: the nonce of a transaction that was committed without its datamarker. ``letters``: ids of dead letters
    whose effects are stored, oldest first.
    """

    epoch: int
    version: int
    move: int
    marker: bytes
    open: bytes | None = None
    letters: tuple[str, ...] = ()

    @property
    def datamarker(self) -> Datamarker:
        """The stored datamarker."""
        return marker_from_bytes(self.marker)

    def advanced(self, marker: Datamarker, letters: Iterable[str]) -> MarkerRow:
        """The row after a transaction that ends at ``marker`` and applied these dead letters."""
        kept = (*self.letters, *letters)[-_MOST_LETTERS:]
        return replace(self, version=self.version + 1, marker=marker_to_bytes(marker), letters=kept)


@dataclass(frozen=True, slots=True)
class Start:
    """How an epoch begins. ``row``: the row that is stored first. ``have``: where delivery begins; ``None``: at the
    publisher's datamarker. ``halt``: the reason if the flow halts instead.
    """

    row: MarkerRow
    have: KeptMarker | None = None
    halt: TargetRefused | None = None


def row_of(found: Sequence[Any], shard: str) -> MarkerRow:
    """Parse the columns of a stored row. Raises :class:`~wormhole.model.errors.TargetRefused` if a program other than
    this SDK wrote them."""
    epoch, version, move, marker, nonce, letters = found
    try:
        row = MarkerRow(
            int(epoch),
            int(version),
            int(move),
            bytes(marker),
            None if nonce is None else bytes(nonce),
            tuple(bytes(letters).decode().splitlines()),
        )
        if row.marker:
            marker_from_bytes(row.marker)
        if not 0 <= row.move <= row.epoch or row.version < 0:
            raise ValueError(f"epoch {epoch}, version {version}, move {move}")
    except (TypeError, ValueError, ProtocolError) as error:
        raise TargetRefused(
            f"the row of shard {shard} in wormhole_marker is not what was stored there: {error!r}",
            hint="restore the row; or delete it, which halts the flow until a backfill or a move of its datamarker",
        ) from error
    return row


def row_key(notice: ShardNotice) -> bytes:
    """The key of a shard's row: a hash, so that neither a collation nor the length of a column makes two keys equal."""
    names = (notice.application, notice.dataset, notice.log, notice.shard)
    return sha256(b"".join(len(name.encode()).to_bytes(4, "big") + name.encode() for name in names)).digest()


def start_of(
    row: MarkerRow | None,
    notice: ShardNotice,
    where: str = "wormhole_marker",
    confirmed: tuple[int, int] = (0, 0),
) -> Start:
    """How the epoch of an ASSIGNED notice begins. ``row``: the stored row; ``None``: there is none. ``where``: the name
    of the rows' place for messages.

    ``confirmed``: epoch and version of the last row that this process stored. A target with an earlier row was set
    back, and so was a target whose row is from before the shard's last acknowledgement. Then no move of the datamarker
    is adopted, because it would pass over the updates that the target lost.

    Raises :class:`~wormhole.model.errors.EpochRefused` if the shard has been in a later epoch.
    """
    assert notice.marker is not None
    marker = marker_to_bytes(notice.marker)
    fresh = MarkerRow(notice.epoch, 0, notice.move, marker)
    if row is None:
        if not notice.acknowledged:
            return Start(fresh)
        return Start(replace(fresh, version=notice.generation, marker=b""), halt=_empty(notice, where))
    if row.epoch > notice.epoch:
        raise EpochRefused(
            f"the target holds shard {notice.shard} in epoch {row.epoch}", held_epoch=row.epoch, shard=notice.shard
        )
    raised = replace(row, epoch=notice.epoch)
    if row.open is not None:
        return Start(raised, halt=_ended_early(notice.application, notice.shard))
    if not row.marker:
        filled = notice.generation > row.version or notice.move > row.move
        return Start(fresh) if filled else Start(raised, halt=_empty(notice, where))
    have = row.datamarker
    set_back = (row.epoch, row.version) < confirmed or notice.was_set_back(KeptMarker(have, row.move))
    if set_back and have.order < notice.marker.order:
        move = max(notice.move, row.move)
        return Start(replace(raised, version=row.version + 1, move=move), KeptMarker(have, move))
    # A publisher of an earlier release sends no number.
    unnumbered = notice.rewound and not notice.move and have.order > notice.marker.order
    if notice.move > row.move or unnumbered:
        moved = max(notice.move, row.move)
        return Start(MarkerRow(notice.epoch, row.version + 1, moved, marker))
    return Start(replace(raised, version=row.version + 1), KeptMarker(have, row.move))


def after_refusal(row: MarkerRow | None, mine: MarkerRow, application: str, shard: str) -> Exception | None:
    """The error after a statement did not find the row that the flow's transaction expects. The transaction was rolled
    back. ``row``: the row that is stored now; ``mine``: the row that was stored when the transaction began.

    ``None``: the row is unchanged, so that nothing of the transaction is stored.
    """
    if row is None:
        return TargetRefused(
            f"the row of shard {shard} in wormhole_marker was deleted while the flow ran",
            code="target-empty",
            hint=f"if the target is empty, `wormholectl backfill start {application}`; "
            f"then `wormholectl flows resume {application}/{shard}`",
        )
    if row.open is not None and row.epoch == mine.epoch:
        return _ended_early(application, shard)
    if (row.epoch, row.version) == (mine.epoch, mine.version):
        return None
    return TargetUnavailable(
        f"the row of shard {shard} in wormhole_marker is in epoch {row.epoch}, version {row.version}, and this flow "
        f"stored epoch {mine.epoch}, version {mine.version}"
    )


def _empty(notice: ShardNotice, where: str) -> TargetRefused:
    flow = f"{notice.application}/{notice.shard}"
    return TargetRefused(
        f"the target has no row of shard {notice.shard} in {where}, and the flow is at {notice.marker}: what "
        "came before is not in the target",
        code="target-empty",
        hint=f"`wormholectl backfill start {notice.application}`, or `wormholectl markers set {flow} PLACE` to begin "
        f"there with an empty target; then `wormholectl flows resume {flow}`",
    )


def _ended_early(application: str, shard: str) -> TargetRefused:
    return TargetRefused(
        f"a transaction of shard {shard} was committed without its datamarker: something other than the helper ended "
        "it, so a part of its effects is stored",
        code="transaction-ended",
        hint=f"`wormholectl explain transaction-ended`, then `wormholectl flows resume {application}/{shard}`",
    )
