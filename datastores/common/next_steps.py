"""The next step for a flow whose datamarker is not of the log, in the order of `log-diverged` in docs/runbook.md."""

from __future__ import annotations

from typing import Final

__all__ = ["REPAIR"]

REPAIR: Final = (
    "`wormholectl repair APP/SHARD` brings the application's data to what the tables hold now, and the flow goes on; "
    "or bring it up to date yourself, then `wormholectl flows accept-loss APP/SHARD` goes on at the earliest place of "
    "the log, and `wormholectl markers set APP/SHARD PLACE` at another one"
)
