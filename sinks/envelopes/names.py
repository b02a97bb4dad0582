"""An envelope by its name, for the settings of sinks."""

from __future__ import annotations

from typing import Literal

from sinks.envelopes.debezium import DebeziumEnvelope
from sinks.envelopes.maxwell import MaxwellEnvelope
from sinks.envelopes.wormhole import WormholeEnvelope
from sinks.records.record import Envelope

__all__ = ["EnvelopeName", "envelope_named"]

EnvelopeName = Literal["wormhole", "debezium", "maxwell"]
"""The values that the setting ``envelope`` of a sink may have."""


def envelope_named(name: EnvelopeName, database: str | None = None) -> Envelope:
    """The envelope with this name. ``database``: see :class:`~sinks.envelopes.debezium.DebeziumEnvelope`."""
    if name == "debezium":
        return DebeziumEnvelope(database)
    return MaxwellEnvelope() if name == "maxwell" else WormholeEnvelope()
