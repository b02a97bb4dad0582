"""Small JSON files of the publisher's state, replaced as a whole: a crash leaves the old or the new content.

Each holds a checksum of its content. A file of an earlier release has none, and is accepted.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Final

import google_crc32c

from wormhole.model.json_input import read_json
from wormhole.model.replace_file import replace_file

__all__ = ["FolderState", "read_state", "write_state"]

_log = logging.getLogger(__name__)
_CHECKSUM: Final = "checksum"


class FolderState:
    """Implements :class:`~wormhole.ports.source_state.SourceState` by files of the folder ``path``, one a document."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def read(self, name: str) -> dict[str, Any]:
        """See the port."""
        return read_state(self._path / f"{name}.json")

    def write(self, name: str, content: dict[str, Any]) -> None:
        """See the port."""
        write_state(self._path / f"{name}.json", content)


def read_state(path: Path) -> dict[str, Any]:
    """The file's content; empty when there is none, and when it is damaged, so that it is made again.

    Raises ``OSError``.
    """
    try:
        content = read_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        content = None
    if isinstance(content, dict):
        checksum = content.pop(_CHECKSUM, None)
        if checksum is None or checksum == _checksum(content):
            return content
    _log.error("%s is damaged and is made anew: what only it knew is forgotten", path)
    return {}


def write_state(path: Path, content: dict[str, Any], *, sync: bool = True) -> None:
    """Replace the file. Raises ``OSError``. Without ``sync`` it survives the process, but possibly not a power cut."""
    text = json.dumps({**content, _CHECKSUM: _checksum(content)}, indent=1, sort_keys=True)
    replace_file(path, text, sync=sync)


def _checksum(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{google_crc32c.value(text.encode()):08x}"
