"""The rules that all stores of parked updates share: the check of the epoch, and the stored form of a letter."""

from __future__ import annotations

import base64
import json
from typing import Any

from wormhole.model.errors import EpochRefused, MarkerStoreError, PositionError
from wormhole.model.json_input import read_json
from wormhole.model.position import LogPosition, flow_name
from wormhole.ports.dead_letters import DeadLetter, UpdatePlace
from wormhole.ports.marker_store import FlowKey

__all__ = ["check_epoch", "letter_from_json", "letter_to_json"]


def check_epoch(flow: FlowKey, epoch: int, stored: int | None) -> None:
    """Raise :class:`~wormhole.model.errors.EpochRefused` unless ``stored``, the flow's epoch now (``None``: no record),
    is ``epoch``.
    """
    if stored != epoch:
        raise EpochRefused(
            f"parked updates of epoch {epoch} are not changed: the flow is at {'none' if stored is None else stored}",
            flow=flow_name(*flow),
        )


def letter_to_json(letter: DeadLetter) -> str:
    """The stored form of a letter."""
    place = letter.place
    record = {
        "id": letter.id,
        "position": str(place.position),
        "inside": place.inside,
        "transaction": place.transaction,
        "index": place.index,
        "rows": [base64.b64encode(row).decode() for row in letter.rows],
        "op": letter.op,
        "parked_at": letter.parked_at,
        "error": letter.error,
        "retrying": letter.retrying,
        "size": letter.size,
        "parked_by": letter.parked_by,
    }
    return json.dumps(record, sort_keys=True)


def letter_from_json(flow: FlowKey, data: str | bytes, where: str) -> DeadLetter:
    """Inverse of :func:`letter_to_json`.

    Raises :class:`~wormhole.model.errors.MarkerStoreError` that names ``where``.
    """
    try:
        given: dict[str, Any] = read_json(data)
        position = LogPosition.parse(given["position"])
        place = UpdatePlace(position, given["inside"], given["transaction"], given["index"])
        rows = tuple(base64.b64decode(row, validate=True) for row in given["rows"])
        parked_by = given.get("parked_by", "")  # missing in letters of earlier releases
        texts = (given["id"], given["op"], given["error"], place.transaction, parked_by)
        numbers = (given["parked_at"], given["size"], place.index)
        flags = (given["retrying"], place.inside)
        if not (
            all(isinstance(text, str) for text in texts)
            and all(isinstance(number, int | float) for number in numbers)
            and all(isinstance(flag, bool) for flag in flags)
        ):
            raise TypeError("a field has the wrong type")
    except (ValueError, KeyError, TypeError, AttributeError, PositionError) as error:
        raise MarkerStoreError(
            f"{where} holds no valid parked update: {type(error).__name__} {error}",
            flow=flow_name(*flow),
            hint="restore it from a backup; without one, delete it: that update is then lost to the application",
            code="marker-damaged",
        ) from error
    return DeadLetter(
        given["id"],
        place,
        rows,
        given["op"],
        given["parked_at"],
        given["error"],
        given["retrying"],
        given["size"],
        parked_by,
    )
