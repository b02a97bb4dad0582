"""The rules that all stores of datamarkers share: which write is accepted, and the stored form of a record."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import replace
from typing import Any, Final

from wormhole.model.errors import MarkerStoreError, PositionError, ProtocolError
from wormhole.model.json_input import read_json
from wormhole.model.position import Datamarker, LastAck, LogPosition, flow_name
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.verification import VerifyMode
from wormhole.ports.marker_store import (
    BackfillControl,
    FlowControl,
    FlowKey,
    MarkerWrite,
    ReplayControl,
    ReplayState,
    StoredFlow,
)
from wormhole.push.epochs import may_be_exceeded
from wormhole.wire.markers import marker_from_bytes, marker_to_bytes

__all__ = [
    "accepts",
    "ack_from_text",
    "ack_to_text",
    "control_from_text",
    "control_to_text",
    "flow_from_json",
    "flow_to_json",
    "in_place_of",
    "moved",
    "raised",
    "written",
    "written_anew",
]

_REPLAY_TEXTS: Final = ("id", "who", "mode", "ticket", "where", "subscriber")
_BACKFILL_TEXTS: Final = ("who", "where", "filter_hash", "paused")
_BACKFILL_ENDS: Final = ("", "done", "cancelled")
_MOST_ROWS: Final = 1 << 64  # the admin service reports it in an unsigned number
_MOST_GENERATIONS: Final = 1 << 63  # SQL databases of applications hold it in a signed number
_MISSING: Final = "marker-missing"
"""The code of a stored problem that has no code of its own."""


def accepts(stored: StoredFlow, write: MarkerWrite) -> bool:
    """Whether ``write`` may replace ``stored``: it has the same epoch, and is not earlier in the log.

    A write with a *later* epoch comes from an owner whose raised epoch was lost when the store was restored. It is
    refused too, because its order relative to other owners is not known. ``order`` compares the incarnation first, so a
    marker of a newer incarnation is always ahead.
    """
    return write.epoch == stored.epoch and write.marker.order >= stored.marker.order


def written(stored: StoredFlow, write: MarkerWrite) -> StoredFlow:
    """``stored`` after ``write``. A write of an unchanged datamarker may have new counts, or belong to a move."""
    acked = stored.last_ack if write.marker == stored.marker else LastAck(stored.move, write.marker.order)
    return replace(stored, marker=write.marker, filter_hash=write.filter_hash, rewound=False, last_ack=acked)


def raised(stored: StoredFlow, above: int) -> StoredFlow:
    """``stored`` in an epoch above its own epoch and above ``above``."""
    return replace(stored, epoch=max(stored.epoch, above) + 1)


def moved(stored: StoredFlow, marker: Datamarker, *, counts: bool) -> StoredFlow:
    """``stored`` set to ``marker``, forwards or backwards, in a higher epoch. ``counts``: whether the epoch becomes the
    number of the last move. Epochs of a flow never repeat, so move numbers only rise.
    """
    back, anew = marker.order < stored.marker.order, raised(stored, 0)
    move, acked = anew.epoch if counts else stored.move, stored.last_ack
    if acked is not None and acked.move == move:  # the application reported this place itself
        acked = min(acked, LastAck(move, marker.order))
    return replace(anew, marker=marker, rewound=back or stored.rewound, move=move, last_ack=acked)


def written_anew(flow: FlowKey) -> str:
    """The next step for a record that cannot be read."""
    name = flow_name(*flow)
    return (
        f"`wormholectl flows accept-loss {name}` writes the record anew and shows where delivery begins; "
        f"or `wormholectl markers set {name} PLACE`"
    )


def in_place_of(damage: MarkerStoreError, marker: Datamarker, epoch: int, start: str) -> StoredFlow:
    """The replacement for an unreadable record. It holds the flow at ``marker`` until an operator decides.

    ``epoch``: an epoch that is not lower than the record's.
    """
    return StoredFlow(marker, epoch, start, control=FlowControl(missing=damage.problem))


def ack_to_text(ack: LastAck | None) -> str:
    """A flow's last acknowledgement in its stored form; empty if there was none."""
    return "" if ack is None else f"{ack.move} {ack.order}"


def ack_from_text(text: str) -> LastAck | None:
    """Inverse of :func:`ack_to_text`. Raises ``ValueError`` and :class:`~wormhole.model.errors.PositionError`."""
    move, _, order = text.partition(" ")
    return LastAck(int(move), LogPosition.parse(order)) if text else None


def control_to_text(control: FlowControl) -> str:
    """The control as JSON; empty for a control without requests."""
    if control == FlowControl():
        return ""
    asked: dict[str, Any] = {"paused": control.paused, "skip": list(control.skip)}
    if control.missing:
        asked["missing"] = control.missing.text
    if control.missing.hint:
        asked["missing_hint"] = control.missing.hint
    if control.missing.code not in {"", _MISSING}:
        asked["missing_code"] = control.missing.code
    if control.replay is not None:
        asked["replay"] = _replay_to_json(control.replay)
    if control.backfill is not None:
        asked["backfill"] = _backfill_to_json(control.backfill)
    if control.unlogged:
        asked["unlogged"] = list(control.unlogged)
    return json.dumps(asked, sort_keys=True)


def control_from_text(text: str) -> FlowControl:
    """Inverse of :func:`control_to_text`. Raises ``ValueError``."""
    if not text:
        return FlowControl()
    given = read_json(text)
    paused, skip = (given.get("paused"), given.get("skip")) if isinstance(given, dict) else (None, None)
    if not (isinstance(paused, str) and isinstance(skip, list) and all(isinstance(item, str) for item in skip)):
        raise ValueError("what was asked of the flow is not readable")
    replay = given.get("replay")  # a record of an earlier release has none
    # Empty fields are omitted. An earlier release wrote the hint into the text.
    missing, hint, code = given.get("missing", ""), given.get("missing_hint", ""), given.get("missing_code", _MISSING)
    unlogged = given.get("unlogged", [])
    if not (all(isinstance(one, str) for one in (missing, hint, code)) and isinstance(unlogged, list)):
        raise ValueError("what was asked of the flow is not readable")
    asked = None if replay is None else _replay_from_json(replay)
    backfill = _backfill_from_json(given["backfill"]) if "backfill" in given else None  # earlier releases have none
    problem = Problem(missing, hint, code) if missing else NO_PROBLEM
    return FlowControl(paused, tuple(skip), asked, problem, backfill, tuple(map(str, unlogged)))


def _backfill_to_json(backfill: BackfillControl) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "who": backfill.who,
        "where": backfill.where,
        "filter_hash": backfill.filter_hash,
        "paused": backfill.paused,
        "ended": backfill.ended,
        "generation": backfill.generation,
        "started_s": backfill.started_s,
        "rate": backfill.rate,
    }
    if backfill.verify is not VerifyMode.NONE:  # omitted otherwise: controls are compared with stored text
        fields["verify"] = backfill.verify.value
    if backfill.rows:
        fields["rows"] = backfill.rows
    if backfill.lost:
        fields["lost"] = [[str(place) for place in one] for one in backfill.lost]
    return fields | {"tables": list(backfill.tables)}


def _backfill_from_json(given: Any) -> BackfillControl:
    """Inverse of :func:`_backfill_to_json`. Raises ``ValueError``."""
    try:
        texts = {name: given[name] for name in _BACKFILL_TEXTS}
        generation, started_s, rate = given["generation"], given["started_s"], given["rate"]
        tables, ended, rows = given["tables"], given["ended"], given.get("rows", 0)
        verify = VerifyMode(given.get("verify", VerifyMode.NONE.value))
        lost = [(LogPosition.parse(begin), LogPosition.parse(end)) for begin, end in given.get("lost", ())]
        if not (
            all(isinstance(text, str) for text in (*texts.values(), *tables))
            and isinstance(tables, list)
            and type(generation) is int
            and 0 < generation < _MOST_GENERATIONS
            and type(rows) is int
            and 0 <= rows < _MOST_ROWS
            and isinstance(started_s, int | float)
            and isinstance(rate, int | float)
            and rate >= 0
            and ended in _BACKFILL_ENDS
        ):
            raise TypeError("a field has the wrong type")
    except (KeyError, TypeError, ValueError, AttributeError, PositionError) as error:
        raise ValueError(f"the backfill of the flow is not readable: {type(error).__name__} {error}") from error
    return BackfillControl(
        who=texts["who"],
        where=texts["where"],
        filter_hash=texts["filter_hash"],
        paused=texts["paused"],
        generation=generation,
        started_s=float(started_s),
        tables=tuple(tables),
        rate=float(rate),
        ended=ended,
        verify=verify,
        rows=rows,
        lost=tuple(lost),
    )


def _replay_to_json(replay: ReplayControl) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": replay.id,
        "who": replay.who,
        "mode": replay.mode,
        "ticket": replay.ticket,
        "where": replay.where,
        "subscriber": replay.subscriber,
        "started_s": replay.started_s,
        "lease_s": replay.lease_s,
        "attempts": replay.attempts,
        "state": replay.state.value,
        "progress": base64.b64encode(replay.progress).decode(),
    }
    if replay.opener:  # omitted otherwise: controls are compared with stored text
        fields["opener"] = replay.opener
    for name, marker in (("begin", replay.begin), ("until", replay.until), ("snapshot", replay.snapshot)):
        if marker is not None:
            fields[name] = base64.b64encode(marker_to_bytes(marker)).decode()
    return fields


def _replay_from_json(given: Any) -> ReplayControl:
    """Inverse of :func:`_replay_to_json`. Raises ``ValueError``."""

    def marker(name: str) -> Datamarker | None:
        return marker_from_bytes(base64.b64decode(given[name], validate=True)) if name in given else None

    try:
        texts = {name: given[name] for name in _REPLAY_TEXTS}
        if not all(isinstance(text, str) for text in texts.values()):
            raise TypeError("a field has the wrong type")
        return ReplayControl(
            id=texts["id"],
            who=texts["who"],
            mode=texts["mode"],
            ticket=texts["ticket"],
            where=texts["where"],
            subscriber=texts["subscriber"],
            started_s=float(given["started_s"]),
            lease_s=float(given["lease_s"]),
            attempts=int(given["attempts"]),
            opener=str(given.get("opener", "")),  # a record of an earlier release has none
            state=ReplayState(given["state"]),
            begin=marker("begin"),
            until=marker("until"),
            snapshot=marker("snapshot"),
            progress=base64.b64decode(given["progress"], validate=True),
        )
    except (KeyError, TypeError, ValueError, ProtocolError) as error:
        raise ValueError(f"the replay that has the flow is not readable: {type(error).__name__} {error}") from error


def flow_to_json(stored: StoredFlow) -> bytes:
    """A record as JSON for the ZooKeeper store. The marker is there as bytes in base64, and as text for people."""
    record: dict[str, Any] = {
        "marker": base64.b64encode(marker_to_bytes(stored.marker)).decode(),
        "place": str(stored.marker),
        "epoch": stored.epoch,
        "start": stored.start,
        "filter_hash": stored.filter_hash,
        "control": control_to_text(stored.control),
    }
    if stored.rewound:
        record["rewound"] = True
    if stored.move:
        record["move"] = stored.move
    if stored.last_ack is not None:
        record["last_ack"] = ack_to_text(stored.last_ack)
    return json.dumps(record, sort_keys=True).encode()


def flow_from_json(flow: FlowKey, data: bytes, where: str) -> StoredFlow:
    """Inverse of :func:`flow_to_json`. Raises :class:`~wormhole.model.errors.MarkerStoreError` that names ``where``."""
    try:
        given: dict[str, Any] = read_json(data)
        marker = marker_from_bytes(base64.b64decode(given["marker"], validate=True))
        epoch, start, filter_hash = given["epoch"], given["start"], given["filter_hash"]
        control = given.get("control", "")  # a node of an earlier release has none
        # False, 0 and empty values are omitted. Earlier releases did not write these fields.
        rewound, move, acked = given.get("rewound", False), given.get("move", 0), given.get("last_ack", "")
        if not (
            type(epoch) is int
            and type(move) is int
            and isinstance(rewound, bool)
            and all(isinstance(text, str) for text in (start, filter_hash, control, acked))
        ):
            raise TypeError("a field has the wrong type")
        if not (epoch >= 0 and may_be_exceeded(epoch)):
            raise ValueError(f"{epoch} is no epoch")
        if not 0 <= move <= epoch:
            raise ValueError(f"{move} is no move up to epoch {epoch}")
        asked = control_from_text(control)
        last_ack = ack_from_text(acked)
    except (ValueError, KeyError, TypeError, binascii.Error, ProtocolError, PositionError) as error:
        raise MarkerStoreError(
            f"{where} holds no valid datamarker: {type(error).__name__} {error}",
            flow=flow_name(*flow),
            hint=written_anew(flow),
            code="marker-damaged",
        ) from error
    return StoredFlow(marker, epoch, start, filter_hash, asked, rewound, move, last_ack)
