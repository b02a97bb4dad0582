"""Flow records that are too large for ZooKeeper: the large part, and the remedy."""

from __future__ import annotations

from publisher.stores.guarded_client import MOST_BYTES
from publisher.stores.markers.rules import control_to_text
from wormhole.model.errors import MarkerStoreError
from wormhole.model.position import flow_name
from wormhole.ports.marker_store import FlowKey, StoredFlow

__all__ = ["too_large"]

_DELIVERED = (
    "the server's set of executed transactions has too many gaps: let replicas commit in the order of their primary, "
    "fill the gaps with empty transactions, then restart the publisher; a log that one host serves may have "
    'publisher.markers = "local" instead, which has no such limit'
)
_PROGRESS = "cancel its backfill with `wormholectl backfill cancel`, and ask for one of fewer tables at a time"
_CONTROL = "ask less of it at a time: fewer tables of a backfill, fewer updates to skip"
_COUNTS = "restart the publisher, and report this as a bug"


def too_large(flow: FlowKey, stored: StoredFlow, size: int, counts: int = 0) -> MarkerStoreError:
    """The error for a record of which a request would have ``size`` bytes. ``counts``: bytes of the delivery counts
    that go with it.
    """
    delivered, progress = len(stored.marker.delivered.encode()), len(stored.marker.backfill)
    control = len(control_to_text(stored.control).encode())
    _, part, what, hint = max(
        # The datamarker is in the record twice: as its bytes, in base64, and as text.
        (_in_base64(delivered) + delivered, delivered, "what was delivered before its place", _DELIVERED),
        (_in_base64(progress), progress, "how far its backfill came", _PROGRESS),
        (control, control, "what was asked of it", _CONTROL),
        (counts, counts, "its counts of deliveries", _COUNTS),
    )
    return MarkerStoreError(
        f"its record is too large to be stored: the request has {size:,} bytes, and ZooKeeper takes {MOST_BYTES:,} at "
        f"most; {part:,} bytes are {what}",
        flow=flow_name(*flow),
        hint=hint,
        code="record-too-large",
    )


def _in_base64(size: int) -> int:
    return (size + 2) // 3 * 4
