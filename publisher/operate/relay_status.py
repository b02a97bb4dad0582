"""What a relay holds, as a message."""

from __future__ import annotations

from wormhole.ports.log_source import RelayStatus
from wormhole.wire.markers import position_to_message
from wormhole.wire.problems import problem_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["relay_to_message"]


def relay_to_message(relay: RelayStatus) -> admin_pb2.RelayStatus:
    """The message of ``relay``."""
    message = admin_pb2.RelayStatus(
        mode=relay.mode,
        stretches=[
            admin_pb2.RelayStretch(begin=position_to_message(begin), end=position_to_message(end))
            for begin, end in relay.stretches
        ],
        bytes=relay.bytes,
        log_bytes=relay.log_bytes,
        budget_bytes=relay.budget_bytes,
        slot_budget_bytes=relay.slot_budget_bytes,
        keeps_slot=relay.keeps_slot,
        readers=relay.readers,
        unsynced_bytes=relay.unsynced_bytes,
        problem=problem_to_message(relay.problem),
    )
    if relay.begin is not None:
        message.begin.CopyFrom(position_to_message(relay.begin.order))
        message.begin_committed_s = relay.begin.committed_at_us / 1e6
    if relay.tip is not None:
        message.tip.CopyFrom(position_to_message(relay.tip.order))
    if relay.synced is not None:
        message.synced.CopyFrom(position_to_message(relay.synced))
    if relay.held is not None:
        message.held.CopyFrom(position_to_message(relay.held))
    return message
