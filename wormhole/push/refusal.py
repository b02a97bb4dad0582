"""What a failed gRPC call says: why an address cannot be reached, and the next step that a server gave. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

import grpc

__all__ = ["hint_metadata", "refusal_of", "why_unreachable"]

_HINT: Final = "wormhole-hint-bin"
"""Trailing metadata of a refused call: the hint of its error.

Its details are the whole text, for clients of any kind.
"""

_WRAPPED: Final = re.compile(
    r"failed to connect to all addresses; last error: \w+: "
    r"(?:ipv4:[\d.]+:\d+|ipv6:\S+:\d+|unix:\S+): (?:Failed to connect to remote host: )?(.+)",
    re.DOTALL,
)


def why_unreachable(details: str) -> str:
    """``Connection refused`` of gRPC's chain of contexts; what has another form stays as it is."""
    found = _WRAPPED.fullmatch(details.strip())
    return found[1] if found else details.strip()


def hint_metadata(hint: str | None) -> tuple[tuple[str, bytes], ...]:
    """The trailing metadata that carries ``hint`` to :func:`refusal_of`; none without one."""
    return () if hint is None else ((_HINT, hint.encode()),)


def refusal_of(error: grpc.RpcError) -> tuple[str, str, str]:
    """The name of the status code, the message and the hint of a failed call; each empty where there is none.

    A server of an earlier release sends no hint apart: its message then ends with the next step.
    """
    call: Any = error  # what a call raises is one, which the stubs do not say
    code = call.code().name if hasattr(call, "code") else ""
    details = str(call.details() or "") if hasattr(call, "details") else str(error)
    metadata = dict(call.trailing_metadata() or ()) if hasattr(call, "trailing_metadata") else {}
    hint = bytes(metadata.get(_HINT, b"")).decode(errors="replace")
    return code, details.removesuffix(f". Next: {' '.join(hint.split())}") if hint else details, hint
