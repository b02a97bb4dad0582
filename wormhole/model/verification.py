"""The results of comparing a source's rows with those of an application."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Self

__all__ = ["MOST_DIFFERENCES", "MOST_EXTRA", "Difference", "DifferenceKind", "TableVerification", "VerifyMode"]

MOST_DIFFERENCES: Final = 1_000
"""Limit of the differences of one table and flow that are kept with their keys. The counts include all differences."""

MOST_EXTRA: Final = 10_000
"""Limit of the extra keys, which only the application holds, that a repair examines in one table and flow."""


class VerifyMode(Enum):
    """What a flow does with a row that a backfill sends."""

    NONE = "none"
    """The row is delivered."""
    COMPARE = "compare"
    """The row is compared with the application's row, and a difference is reported."""
    REPAIR = "repair"
    """The row is compared, and delivered if it differs."""


class DifferenceKind(Enum):
    """How the two sides of a key differ."""

    DIFFERS = "differs"
    """Both have the row, and at least one column differs."""
    MISSING = "missing"
    """The source has the row, the application does not."""
    EXTRA = "extra"
    """The application has the row, the source does not."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference. ``key``: a serialized ``wormhole.wire.v1.RowKey`` without a table. ``columns``: the names of
    differing columns.
    """

    kind: DifferenceKind
    key: bytes
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableVerification:
    """The result of comparing one table in one flow.

    The counts are those of ``Verified`` in push.proto. ``differences``: the first :data:`MOST_DIFFERENCES`. ``ended``:
    no row is left to compare. ``trouble``: why something was not compared or not removed.
    """

    table: str
    compared: int = 0
    not_compared: int = 0
    differs: int = 0
    missing: int = 0
    extra: int = 0
    repaired: int = 0
    removed: int = 0
    differences: tuple[Difference, ...] = field(default=())
    ended: bool = False
    trouble: str = ""

    @property
    def equal(self) -> bool:
        """Whether everything was compared and nothing differed."""
        different = self.differs or self.missing or self.extra
        return self.ended and not (different or self.not_compared or self.trouble)

    def plus(self, other: Self) -> Self:
        """This result combined with a later one of the same table."""
        return type(self)(
            self.table,
            self.compared + other.compared,
            self.not_compared + other.not_compared,
            self.differs + other.differs,
            self.missing + other.missing,
            self.extra + other.extra,
            self.repaired + other.repaired,
            self.removed + other.removed,
            self._with(other.differences),
            other.ended,
            other.trouble or self.trouble,
        )

    def _with(self, more: tuple[Difference, ...]) -> tuple[Difference, ...]:
        """Add the differences that are not named already, up to the limit."""
        known = frozenset(self.differences)
        new = tuple(one for one in more if one not in known) if known else more
        return (*self.differences, *new)[:MOST_DIFFERENCES]
