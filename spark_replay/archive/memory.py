"""Memory of a process that takes much, writes it to a file and lets it go, over and over. Of glibc only; elsewhere nothing happens.

By default each thread of a process keeps an arena of its own, and pyarrow another allocator beside: what one lets go of is no use to the others, and
so a process comes to take half as much again as it needs at any time.
"""

from __future__ import annotations

import ctypes
from typing import Final

import pyarrow as pa

__all__ = ["give_back", "share"]

_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h


def _libc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # no such thing outside of Unix
        return None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None


def share() -> bool:
    """From now on all threads and pyarrow take memory from one place. Whether that can be had; call it before there are threads."""
    libc = _libc()
    if libc is None or not libc.mallopt(_ARENA_MAX, 1):
        return False
    pa.set_memory_pool(pa.system_memory_pool())
    return True


def give_back() -> None:
    """What is free goes to the operating system. Takes about a millisecond; what is taken again costs a little more."""
    pa.default_memory_pool().release_unused()
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)
