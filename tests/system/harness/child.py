"""What every process of the harness does first."""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the test that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def settings() -> dict[str, Any]:
    """The one argument, JSON."""
    die_with_parent()
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found
