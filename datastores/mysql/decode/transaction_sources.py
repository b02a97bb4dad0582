"""The prefixes of transaction ids, which name the committing server, by ordinal. Hot: compiled where possible."""

from __future__ import annotations

from datastores.mysql.decode.gtid import source_text

__all__ = ["Sources"]


class Sources:
    """``names`` by ordinal, in the order in which they were added."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._ordinals: dict[object, int] = {}

    def add(self, name: str) -> int:
        """The ordinal of ``name``, which is added if it is new."""
        ordinal = self._ordinals.get(name)
        if ordinal is None:
            ordinal = len(self.names)
            self.names.append(name)
            self._ordinals[name] = ordinal
        return ordinal

    def of_uuid(self, uuid: bytes) -> int:
        """The ordinal of the MySQL server with this uuid."""
        ordinal = self._ordinals.get(uuid)
        if ordinal is None:
            ordinal = self.add(source_text(uuid))
            self._ordinals[uuid] = ordinal
        return ordinal

    def of_domain(self, domain: int, server_id: int) -> int:
        """The ordinal of a MariaDB server in a domain."""
        key = domain << 32 | server_id
        ordinal = self._ordinals.get(key)
        if ordinal is None:
            ordinal = self.add(f"{domain}-{server_id}")
            self._ordinals[key] = ordinal
        return ordinal
