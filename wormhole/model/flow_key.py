"""The key of a flow in every store: its application and its shard."""

from __future__ import annotations

__all__ = ["FlowKey", "start_key"]

FlowKey = tuple[str, str]
"""``(application, shard)``."""


def start_key(application: str, log: str) -> FlowKey:
    """The key of the record that holds where the application starts in ``log``. The marker of this record never moves.

    The record is stored like a flow's. No shard has such a name: in a shard's name a ``%`` is followed by hexadecimal
    digits.
    """
    return (application, f"{log}.%start")
