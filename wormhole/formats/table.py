"""The format of each table's values, and the fields of them that filters test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wormhole.formats.decoders import Decoder, FieldPath
from wormhole.model.errors import FilterError

__all__ = ["MAX_FIELDS", "ValueFormats"]

MAX_FIELDS: Final = 1024
"""Limit of the different fields that all filters of one process test together: each is searched in every value that is
read.
"""


class ValueFormats:
    """The decoders of one dataset: ``default`` for all tables but those in ``tables`` (``None``: bytes).

    Filters register the fields that they test. So a value is read once for all of them, and only those fields are kept.
    """

    def __init__(self, default: Decoder | None = None, tables: Mapping[str, Decoder | None] | None = None) -> None:
        self._default = default
        self._tables = dict(tables or {})
        self.paths: list[FieldPath] = []
        """The registered fields; the index is the field's slot, and never changes."""

    def of(self, table: str) -> Decoder | None:
        """The decoder of a table's values."""
        return self._tables.get(table, self._default)

    @property
    def decoders(self) -> tuple[Decoder, ...]:
        """Every decoder, each once."""
        found = (self._default, *self._tables.values())
        return tuple(dict.fromkeys(decoder for decoder in found if decoder is not None))

    def __bool__(self) -> bool:
        """Whether any table's values can be read."""
        return bool(self.decoders)

    def slot(self, path: FieldPath) -> int:
        """Register a field. Raises :class:`~wormhole.model.errors.FilterError` when there are too many."""
        if path in self.paths:
            return self.paths.index(path)
        if len(self.paths) == MAX_FIELDS:
            raise FilterError(
                f"the filters of this process test {MAX_FIELDS} different fields already",
                hint="restart the publisher, which forgets the fields of former filters",
            )
        self.paths.append(path)
        return len(self.paths) - 1
