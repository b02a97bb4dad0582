"""Parked updates for tests."""

from __future__ import annotations

from subscriber_sdk.testing import Change, body_of, update
from wormhole.model.position import LogPosition
from wormhole.model.schema import Schema
from wormhole.ports.dead_letters import DeadLetter, Parcel, UpdatePlace, open_parcel, place_of

USERS: Schema = update("users", key=1, after={"name": "ada"}).schema
"""Every :func:`letter` has it."""


def parcel_of(change: Change, number: int = 1, index: int = 0) -> Parcel:
    """``change`` as update ``index`` of transaction ``test:<number>``."""
    return Parcel(change.schema.canonical, body_of([change], number=number, first_index=index))


def place(offset: int, index: int = 0, *, inside: bool = False, transaction: str = "") -> UpdatePlace:
    return UpdatePlace(LogPosition(1, 1, offset), inside, transaction or f"test:{offset}", index)


def letter(
    number: int, key: int = 1, *, index: int = 0, error: str = "boom", retrying: bool = False, body: bytes = b""
) -> tuple[DeadLetter, Parcel]:
    """A parked insert into ``users``, and its parcel (with ``body`` in place of the right one)."""
    parcel = parcel_of(update("users", key=key, after={"name": "ada"}), number, index)
    parked = open_parcel(parcel)
    parcel = Parcel(parcel.schema, body or parcel.body)
    size = len(parcel.schema) + len(parcel.body)
    told = DeadLetter(
        parked.id, place_of(parked), parked.rows(), parked.op.value, 1_700_000_000.5, error, retrying, size
    )
    return told, parcel
