"""Who committed: the left halves of transaction ids, by ordinal. Hot: compiled where possible."""

from __future__ import annotations

from datastores.mysql.decode.gtid import source_text

__all__ = ["Sources"]


class Sources:
    """``names`` by ordinal, in the order in which they were met."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._ordinals: dict[object, int] = {}

    def add(self, name: str) -> int:
        """The ordinal of ``name``, a new one if need be."""
        ordinal = self._ordinals.get(name)
        if ordinal is None:
            ordinal = len(self.names)
            self.names.append(name)
            self._ordinals[name] = ordinal
        return ordinal

    def of_uuid(self, uuid: bytes) -> int:
        """The ordinal of a MySQL server."""
        ordinal = self._ordinals.get(uuid)
        if ordinal is None:
            ordinal = self.add(source_text(uuid))
            self._ordinals[uuid] = ordinal
        return ordinal

    def of_domain(self, domain: int, server_id: int) -> int:
        """The ordinal of what a MariaDB server commits in a domain."""
        key = domain << 32 | server_id
        ordinal = self._ordinals.get(key)
        if ordinal is None:
            ordinal = self.add(f"{domain}-{server_id}")
            self._ordinals[key] = ordinal
        return ordinal
