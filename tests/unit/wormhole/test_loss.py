"""Why log can be missing, and the names under which that is told."""

from __future__ import annotations

from wormhole.loss import LogGap, LossKind
from wormhole.wire.v1 import push_pb2


def test_every_kind_has_a_name_on_the_wire() -> None:
    assert {kind.value.upper() for kind in LossKind} == set(push_pb2.DataLoss.Kind.keys()) - {"KIND_UNSPECIFIED"}


def test_equal_gaps_are_equal() -> None:
    """A flow remembers the gap that it passed by comparing it."""
    assert LogGap(LossKind.PURGED, "1", "2", "m") == LogGap(LossKind.PURGED, "1", "2", "m")
    assert LogGap(LossKind.PURGED, "1", "2", "m") != LogGap(LossKind.PURGED, "1", "3", "m")
