"""The properties of a table that the decoder of its rows needs. Hot: compiled where possible, to give them C types."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from datastores.common.encode.row_updates import RowTable
from wormhole.model.errors import DecodeError

__all__ = ["Table"]


class Table(RowTable):
    """``kinds``: the kind of each column (see `datastores.postgres.decode.kinds`). ``identity``: 1 for a column that a
    key tuple in the log holds. ``keyed``: 1 for each column of the key.

    ``barrier_schema`` and ``barrier_shard``: the ordinals for a TRUNCATE. ``skipped``: no row of the table is
    delivered. ``error``: why its rows cannot be read; ``None``: they can. ``inserts``: inserted rows can be read in
    spite of ``error``. ``to_utf8``: converts a text's bytes to UTF-8, and invalid text to ``None``; ``None``: text is
    UTF-8.
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
        super().__init__(name, len(columns), key, schema, shard)
        self.columns = tuple(columns)
        self.kinds = bytes(kinds)
        self.identity = bytes(identity)
        self.keyed = bytes(c in key for c in range(len(columns)))
        self.barrier_schema = barrier_schema
        self.barrier_shard = barrier_shard
        self.skipped = skipped
        self.error = error
        self.inserts = inserts
        self.to_utf8 = to_utf8
