"""An envelope by its name, for the settings of sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from sinks.envelopes.wormhole import WormholeEnvelope
from sinks.records.record import Envelope

__all__ = ["ENVELOPES", "EnvelopeName", "envelope_named"]

EnvelopeName = Literal["wormhole"]
"""What ``envelope`` of a sink may be."""

ENVELOPES: Final[Mapping[EnvelopeName, Callable[[], Envelope]]] = {"wormhole": WormholeEnvelope}


def envelope_named(name: EnvelopeName) -> Envelope:
    """The envelope with this name."""
    return ENVELOPES[name]()
