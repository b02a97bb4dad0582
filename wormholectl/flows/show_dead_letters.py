"""Parked updates as rows and as objects."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from wormhole.wire.v1 import admin_pb2
from wormholectl.show.printer import print_table, print_text, utc

__all__ = ["letter_object", "show_letters"]


def letter_object(letter: admin_pb2.DeadLetter) -> dict[str, Any]:
    """One parked update for programs (docs/cli-schema.json: ``dead-letter``)."""
    return {
        "flow": letter.flow,
        "update": letter.update_id,
        "table": letter.table or None,
        "key": letter.key,
        "op": letter.op,
        "parked_at": utc(letter.parked_at_s),
        "error": letter.error,
        "bytes": letter.bytes,
        "retrying": letter.retrying,
        "parked_by": letter.parked_by or None,
    }


def show_letters(letters: Sequence[admin_pb2.DeadLetter], total: int) -> None:
    """A table of ``letters``; ``total``: how many there are."""
    rows = [
        (
            one.flow,
            one.update_id,
            one.table or "-",
            one.key,
            one.op,
            f"{datetime.fromtimestamp(one.parked_at_s).astimezone():%Y-%m-%d %H:%M:%S}",
            one.parked_by or "-",
            f"{'(to be delivered again) ' if one.retrying else ''}{one.error}",
        )
        for one in letters
    ]
    print_table(("FLOW", "UPDATE", "TABLE", "KEY", "OP", "PARKED", "PARKED BY", "ERROR"), rows, "no dead letters")
    if total > len(letters):
        print_text(f"{len(letters):,} of {total:,}; --limit shows more")
