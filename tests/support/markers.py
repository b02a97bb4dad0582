"""Datamarkers and writes for tests of marker stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.ports.marker_store import MarkerStore, MarkerWrite

_Store = TypeVar("_Store", bound=MarkerStore)

CACHE, SEARCH = ("cache", "db1"), ("search", "db1.shop%2Eusers")


def marker(offset: int, incarnation: int = 1) -> Datamarker:
    place = LogPosition(incarnation, 7, offset)
    return Datamarker(
        place, str(offset), place, Anchor(f"{offset}", 0xDEADBEEF, LogPosition(1, 7, 0)), 1_700_000_000_000_000
    )


def write(offset: int, epoch: int = 0, flow: tuple[str, str] = CACHE, filter_hash: str = "f") -> MarkerWrite:
    return MarkerWrite(flow, epoch, marker(offset), filter_hash)


@contextmanager
def opened(store: _Store) -> Iterator[_Store]:
    """The store while it is open."""
    with closing(store):
        store.open()
        yield store
