"""The first server versions with features that this package uses. The number of 15.4 is 150004."""

from __future__ import annotations

from typing import Final

__all__ = ["FAILOVER_SINCE", "FILTERS_SINCE", "GENERATED_SINCE"]

FILTERS_SINCE: Final = 150000
"""Publications can have row filters, column lists and schemas."""
FAILOVER_SINCE: Final = 170000
"""Standbys can have their primary's slots."""
GENERATED_SINCE: Final = 180000
"""Publications can have generated columns."""
