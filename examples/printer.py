"""Prints every change. The smallest subscriber: deploy/compose and deploy/kubernetes run it.

python -m examples.printer [APPLICATION]
"""

from __future__ import annotations

import sys

from subscriber_sdk import Subscriber, Update, run

__all__ = ["Printer"]


class Printer(Subscriber):
    """Has nothing to keep, so a repeated update does no harm."""

    async def on_update(self, update: Update) -> None:
        """One line for each."""
        print(update.op.value, update.table, *update.key, dict(update.after or {}))


if __name__ == "__main__":
    run(Printer(), application=sys.argv[1] if sys.argv[1:] else "printer")
