"""Identifies a file or folder on a running machine. A copy, or the same file after a reboot, has another identity."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

__all__ = ["identity_of"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def identity_of(found: os.stat_result) -> str:
    """A text that is the same for every process that sees this file, while the machine runs."""
    return f"{_boot_id()}/{found.st_dev:x}:{found.st_ino:x}"


def _boot_id() -> str:
    """The running kernel's boot id. Source: proc(5), /proc/sys/kernel/random/boot_id. If there is none, a
    unique text.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return secrets.token_hex(16)
