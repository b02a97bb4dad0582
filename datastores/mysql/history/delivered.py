"""The logical position: the GTIDs of all transactions that were read. Another server can continue after them.

MySQL: a GTID set. MariaDB: the last GTID of each domain. For a server without GTIDs (``gtid_mode=OFF``) the logical
position is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from datastores.mysql.decode.gtid import GtidSet, MariaPosition

__all__ = ["MariaDelivered", "MySqlDelivered", "delivered_of", "is_anonymous"]


def is_anonymous(name: str) -> bool:
    """Whether ``name``, of a transaction or a source, was made from a file's name because there is no GTID."""
    return "/" in name


class MySqlDelivered:
    """A GTID set that grows with the transactions read. A datamarker stores its ``str``.

    Anonymous transactions (their source is ``uuid/file``) are not in it."""

    def __init__(self, text: str) -> None:
        self._set = GtidSet.parse(text)
        self._text: str | None = None

    def add(self, names: Sequence[str], sources: Sequence[int], numbers: Sequence[int]) -> None:
        """Add transactions that ended, in log order: ``names[sources[i]]:numbers[i]``."""
        count = len(numbers)
        i = 0
        while i < count:
            source, first = sources[i], numbers[i]
            last = first
            i += 1
            while i < count and numbers[i] == last + 1 and sources[i] == source:
                last += 1
                i += 1
            name = names[source]
            if not is_anonymous(name):
                self._set.add(name, first, last)
                self._text = None

    def include(self, other: GtidSet) -> None:
        """Add the GTIDs logged before a file, from the list at the file's beginning."""
        self._set = self._set.union(other)
        self._text = None

    def __str__(self) -> str:
        if self._text is None:
            self._text = str(self._set)
        return self._text


class MariaDelivered:
    """Like :class:`MySqlDelivered`, for a GTID position. Sources are ``domain-server``."""

    def __init__(self, text: str) -> None:
        self._position = MariaPosition.parse(text)

    def add(self, names: Sequence[str], sources: Sequence[int], numbers: Sequence[int]) -> None:
        """Add transactions that ended, in log order: ``names[sources[i]]:numbers[i]``."""
        last: dict[str, tuple[int, int]] = {}
        if len(set(sources)) == 1:
            last[""] = (sources[-1], numbers[-1])
        else:
            for source, number in zip(sources, numbers, strict=True):
                last[names[source].partition("-")[0]] = (source, number)
        for source, number in last.values():
            domain, _, server = names[source].partition("-")
            self._position.advance(int(domain), int(server), number)

    def __str__(self) -> str:
        return str(self._position)


def delivered_of(text: str, *, mariadb: bool) -> MySqlDelivered | MariaDelivered:
    """The logical position that continues the stored one in ``text``. Raises
    :class:`~wormhole.model.errors.PositionError` if ``text`` is no position."""
    return MariaDelivered(text) if mariadb else MySqlDelivered(text)
