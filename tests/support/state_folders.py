"""The state folder of a publisher that a test plays itself: with its token, and the folder of its socket open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wormhole.host.local_admin import LocalAdmin, socket_target, token_path

TOKEN = "5e" * 32


@contextmanager
def local_admin(state_dir: Path) -> Iterator[tuple[LocalAdmin, str]]:
    """The way to shop/main/db1 with this state folder, and the target at which its socket listens within the
    ``with``."""
    folder = state_dir / "shop" / "main" / "db1"
    folder.mkdir(parents=True, mode=0o700)
    file = token_path(state_dir)
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    handle = os.open(folder, os.O_PATH)
    try:
        yield LocalAdmin(state_dir, "shop", "main", "db1"), socket_target(handle)
    finally:
        os.close(handle)
