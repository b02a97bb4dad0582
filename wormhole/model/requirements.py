"""Checks that an imported package is recent enough. pip ensures it, but another package's pin may undo that."""

from __future__ import annotations

import re
from typing import Final

from wormhole.model.errors import UsageError

__all__ = ["OLDEST", "need"]

OLDEST: Final = {"grpcio": "1.80", "protobuf": "7.35.1"}
"""The oldest version of each distribution, as in ``pyproject.toml``. The generated code of ``wormhole.wire.v1`` does
not run with an older protobuf.
"""


def need(distribution: str, installed: str) -> None:
    """Raise :class:`~wormhole.model.errors.UsageError` if ``installed`` is an older version than :data:`OLDEST` has."""
    oldest = OLDEST[distribution]
    if _numbers(installed) < _numbers(oldest):
        raise UsageError(
            f"wormhole-pubsub needs {distribution} {oldest} or later, and {installed} is installed",
            hint=f"pip install '{distribution}>={oldest}'; `pip check` names the package that wants an older one",
            code="extra-missing",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
