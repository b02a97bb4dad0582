"""Data folders of private servers that are ready to be copied: initialising one takes seconds, so each is made once.

They are kept in the environment, which a copy of the tree borrows: the passes over such copies find what the checkout's
made.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from wormhole.host.private_server import PrivateServer

__all__ = ["kept_data"]

_KEPT: Final = Path(sys.prefix) / "databases"
# Each copy is a server of its own, with a history of its own.
_OWN: Final = shutil.ignore_patterns("auto.cnf", "binlog.*")


def kept_data(server: PrivateServer, *made_from: object) -> Path:
    """The data folder that ``server``, which was not started, makes; kept for these versions and options."""
    made = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:12]
    kept = _KEPT / f"{server.flavour}-{made}"
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="draft-", dir=kept.parent) as folder, server:
        server.stop()
        draft = Path(folder, "data")
        shutil.copytree(server.data, draft, ignore=_OWN)
        try:
            draft.rename(kept)
        except OSError:
            if not kept.exists():  # else another run was faster
                raise
    return kept
