"""Checks ids of updates as operators write them, ``SOURCE:NUMBER:INDEX``, and whether a datamarker has passed an
update."""

from __future__ import annotations

import re
from typing import Final

from wormhole.config.datastores import datastore, schemes
from wormhole.model.errors import UsageError
from wormhole.model.position import Datamarker
from wormhole.ports.datastore import number_is_behind

__all__ = ["check_update_id", "is_behind"]

_LONGEST: Final = 200
# SOURCE is the datastore's own name, with one colon at most.
_ID: Final = re.compile(r"([!-9;-~]+(?::[!-9;-~]+)?):(\d{1,20}):(\d{1,10})")


def check_update_id(text: str) -> None:
    """Raises :class:`~wormhole.model.errors.UsageError` if ``text`` is not an update's id."""
    if len(text) > _LONGEST or not _ID.fullmatch(text):
        raise UsageError(
            f"{text[:_LONGEST]!r} is no id of an update",
            hint="an id is SOURCE:NUMBER:INDEX, as in the subscriber's log and in what `flows` shows of a halted flow",
        )


def is_behind(kind: str, update_id: str, marker: Datamarker) -> bool:
    """Whether the update ends at or before the marker, as far as its id and the marker's logical position show.

    ``kind``: the kind of the source. A kind without an installed datastore is assumed to number its transactions.
    """
    match = _ID.fullmatch(update_id)
    if match is None:
        return False
    source, number = match[1], int(match[2])
    if kind not in schemes():
        return number_is_behind(number, marker)
    return datastore(kind).is_behind(source, number, marker)
