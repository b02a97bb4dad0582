"""The logical position: which transactions were read, as GTIDs, so that another server can continue from there.

MySQL: the set of their GTIDs. MariaDB: the last GTID of each domain. A server without GTIDs (``gtid_mode=OFF``) has no
such terms: empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from datastores.mysql.decode.gtid import GtidSet, MariaPosition

__all__ = ["MariaDelivered", "MySqlDelivered", "delivered_of", "is_anonymous"]


def is_anonymous(name: str) -> bool:
    """Whether a transaction, or the source of some, is named by its file: it has no GTID."""
    return "/" in name


class MySqlDelivered:
    """A GTID set that grows with what is read; ``str`` of it is what a datamarker stores.

    Anonymous transactions (their source is ``uuid/file``) leave no trace in it."""

    def __init__(self, text: str) -> None:
        self._set = GtidSet.parse(text)
        self._text: str | None = None

    def add(self, names: Sequence[str], sources: Sequence[int], numbers: Sequence[int]) -> None:
        """Transactions that ended, in log order: ``names[sources[i]]:numbers[i]``."""
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
        """The GTIDs that were logged before a file, which its beginning lists."""
        self._set = self._set.union(other)
        self._text = None

    def __str__(self) -> str:
        if self._text is None:
            self._text = str(self._set)
        return self._text


class MariaDelivered:
    """Likewise a GTID position. Sources are ``domain-server``."""

    def __init__(self, text: str) -> None:
        self._position = MariaPosition.parse(text)

    def add(self, names: Sequence[str], sources: Sequence[int], numbers: Sequence[int]) -> None:
        """Transactions that ended, in log order: ``names[sources[i]]:numbers[i]``."""
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
    """Going on from a stored position. Raises :class:`~wormhole.model.errors.PositionError` when ``text`` is none."""
    return MariaDelivered(text) if mariadb else MySqlDelivered(text)
