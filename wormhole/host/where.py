"""The options with which commands reach publishers: addresses, certificates and the state folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wormhole.config import TlsFiles

__all__ = ["Where"]


@dataclass(frozen=True, slots=True)
class Where:
    """How to reach publishers: one ``publisher`` by address, or all that a ``coordinator`` (ZooKeeper, or a .toml file)
    knows.

    ``tls``: certificates to dial with; ``tls_name``: the name expected in the publisher's certificate instead of its
    host. ``folder``: the folder of this host's publishers' state, if not the one that the file names.
    """

    publisher: str = ""
    coordinator: str = ""
    tls: TlsFiles | None = None
    tls_name: str = ""
    folder: Path | None = None
