"""Converts the modes and kinds of a verification to their numbers on the wire, and back."""

from __future__ import annotations

from typing import Final

from wormhole.model.verification import DifferenceKind, VerifyMode
from wormhole.wire.v1 import push_pb2

__all__ = ["KINDS", "kind_of", "mode_of", "mode_to_message"]

_MODES: Final = {
    VerifyMode.NONE: push_pb2.VERIFY_NONE,
    VerifyMode.COMPARE: push_pb2.VERIFY_COMPARE,
    VerifyMode.REPAIR: push_pb2.VERIFY_REPAIR,
}
_MODE_OF: Final = {number: mode for mode, number in _MODES.items()}

KINDS: Final = {
    DifferenceKind.DIFFERS: push_pb2.Difference.DIFFERS,
    DifferenceKind.MISSING: push_pb2.Difference.MISSING,
    DifferenceKind.EXTRA: push_pb2.Difference.EXTRA,
}
_KIND_OF: Final = {number: kind for kind, number in KINDS.items()}


def mode_to_message(mode: VerifyMode) -> push_pb2.Verify:
    """The number of a mode."""
    return _MODES[mode]


def mode_of(number: push_pb2.Verify) -> VerifyMode | None:
    """The mode of a number; ``None``: this release does not know it."""
    return _MODE_OF.get(number)


def kind_of(number: push_pb2.Difference.Kind) -> DifferenceKind | None:
    """The kind of a number; ``None``: this release does not know it."""
    return _KIND_OF.get(number)
