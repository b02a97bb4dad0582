"""Files that only their user may read, whatever the umask of the shell or service manager was."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["keep_private"]

_ONLY_MINE: Final = 0o077


def keep_private() -> None:
    """From now on files that this process and its children create are 0600 and folders 0700.

    State folders hold tokens, datamarkers and pinned log files, which are the database's content. What exists keeps its mode, and a
    pinned file is a hard link to the database's own file: its folder protects it.
    """
    os.umask(_ONLY_MINE)
