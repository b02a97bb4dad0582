"""What gRPC says of an address that it could not connect to, without what it says of itself. Pure."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["why_unreachable"]

_WRAPPED: Final = re.compile(
    r"failed to connect to all addresses; last error: \w+: "
    r"(?:ipv4:[\d.]+:\d+|ipv6:\S+:\d+|unix:\S+): (?:Failed to connect to remote host: )?(.+)",
    re.DOTALL,
)


def why_unreachable(details: str) -> str:
    """``Connection refused`` of gRPC's chain of contexts; what has another form stays as it is."""
    found = _WRAPPED.fullmatch(details.strip())
    return found[1] if found else details.strip()
