"""Texts for two errors: a datamarker that is not of the log, and a delivered part of the log that a datastore lacks.

The next steps have the order of `log-diverged` in docs/runbook.md."""

from __future__ import annotations

from typing import Final

__all__ = ["REPAIR", "shortened"]

REPAIR: Final = (
    "`wormholectl repair APP/SHARD` brings the application's data to what the tables hold now, and the flow goes on; "
    "or bring it up to date yourself, then `wormholectl flows accept-loss APP/SHARD` goes on at the earliest place of "
    "the log, and `wormholectl markers set APP/SHARD PLACE` at another one"
)


_MOST: Final = 300
_CUT: Final = "..."


def shortened(text: str) -> str:
    """The text, cut at 300 characters."""
    return text if len(text) <= _MOST else text[: _MOST - len(_CUT)] + _CUT
