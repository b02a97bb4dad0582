"""A table's plan as the decoder of its rows uses it. Hot: compiled where possible, for its types."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from wormhole.model.errors import DecodeError

__all__ = ["Table"]


class Table:
    """``kinds``: of the columns (see `datastores.postgres.decode.kinds`). ``identity``: 1 for a column that a
    key tuple in the log holds. ``key``: positions of the key's columns, ``keyed``: 1 for each of them.

    ``schema`` and ``shard``: ordinals of its updates, ``barrier_schema`` and ``barrier_shard`` those of a TRUNCATE.
    ``skipped``: nothing of it is handed on. ``error``: why its rows cannot be read, if they cannot; ``inserts``: except
    those that were inserted. ``to_utf8``: makes UTF-8 of a text's bytes, ``None`` of what is no text; without it they
    are UTF-8, where they are text.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        kinds: Sequence[int],
        identity: Sequence[bool],
        key: Sequence[int],
        *,
        schema: int,
        shard: int,
        barrier_schema: int,
        barrier_shard: int,
        skipped: bool = False,
        error: DecodeError | None = None,
        inserts: bool = False,
        to_utf8: Callable[[bytes], bytes | None] | None = None,
    ) -> None:
        if not len(columns) == len(kinds) == len(identity):
            raise ValueError(f"{name}: {len(columns)} columns, {len(kinds)} kinds, {len(identity)} flags")
        self.name = name
        self.columns = tuple(columns)
        self.count = len(columns)
        self.kinds = bytes(kinds)
        self.identity = bytes(identity)
        self.key_array = array("I", key)
        self.key = self.key_array
        self.keyed = bytes(c in key for c in range(len(columns)))
        self.schema = schema
        self.shard = shard
        self.barrier_schema = barrier_schema
        self.barrier_shard = barrier_shard
        self.skipped = skipped
        self.error = error
        self.inserts = inserts
        self.to_utf8 = to_utf8
