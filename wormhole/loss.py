"""What is missing from a log, told with its exact range."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["LogGap", "LossKind"]


class LossKind(Enum):
    """Why a range cannot be delivered."""

    PURGED = "purged"
    """The log once held it and no longer does."""
    NOT_LOGGED = "not_logged"
    """It was written to the datastore past the log."""
    DIVERGED = "diverged"
    """The log is not the one that the datamarker came from."""


@dataclass(slots=True, frozen=True)
class LogGap:
    """A range that the log does not hold.

    ``first_missing`` and ``last_missing`` are logical positions of the source (RocksDB: sequence numbers), inclusive; empty
    when unknown. ``message`` says what happened and where.
    """

    kind: LossKind
    first_missing: str
    last_missing: str
    message: str
