"""Reads the reason from a failed gRPC call: why an address cannot be reached, and a server's next step. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

import grpc

from wormhole.model.problem import Problem

__all__ = ["refusal_metadata", "refusal_of", "why_unreachable"]

_HINT: Final = "wormhole-hint-bin"
_CODE: Final = "wormhole-code"
"""Names of the trailing metadata of a refused call: for the hint and the code of its error.

The call's details are the whole text, for clients of any kind.
"""

_WRAPPED: Final = re.compile(
    r"failed to connect to all addresses; last error: \w+: "
    r"(?:ipv4:[\d.]+:\d+|ipv6:\S+:\d+|unix:\S+): (?:Failed to connect to remote host: )?(.+)",
    re.DOTALL,
)


def why_unreachable(details: str) -> str:
    """The cause, such as ``Connection refused``, from gRPC's chain of contexts. Text of another form is returned
    unchanged.
    """
    found = _WRAPPED.fullmatch(details.strip())
    return found[1] if found else details.strip()


def refusal_metadata(hint: str | None, code: str = "") -> tuple[tuple[str, str | bytes], ...]:
    """The trailing metadata with hint and code for :func:`refusal_of`. ``None`` and an empty code are left out."""
    found: list[tuple[str, str | bytes]] = [] if hint is None else [(_HINT, hint.encode())]
    return (*found, (_CODE, code)) if code else tuple(found)


def refusal_of(error: grpc.RpcError) -> tuple[str, Problem]:
    """The name of the status of a failed call, and the problem that its server reported. Each part is empty if it is
    missing.

    A server of an earlier release sends no code. A still earlier one sends no separate hint: its message then ends with
    the next step.
    """
    call: Any = error  # gRPC's error is also the call, which its stubs do not show
    status = call.code().name if hasattr(call, "code") else ""
    details = str(call.details() or "") if hasattr(call, "details") else str(error)
    metadata = dict(call.trailing_metadata() or ()) if hasattr(call, "trailing_metadata") else {}
    hint = bytes(metadata.get(_HINT, b"")).decode(errors="replace")
    code = str(metadata.get(_CODE, ""))
    if hint:
        details = details.removesuffix(f". Next: {' '.join(hint.split())}")
    return status, Problem(details.removesuffix(f" [{code}]"), hint, code)
