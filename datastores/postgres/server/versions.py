"""The first server versions with the features that this package uses, as 150004 for 15.4."""

from __future__ import annotations

from typing import Final

__all__ = ["FAILOVER_SINCE", "FILTERS_SINCE", "GENERATED_SINCE"]

FILTERS_SINCE: Final = 150000
"""Publications can have row filters, column lists and schemas."""
FAILOVER_SINCE: Final = 170000
"""Standbys can have the slots of their primary."""
GENERATED_SINCE: Final = 180000
"""Publications can have generated columns."""
