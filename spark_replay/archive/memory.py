"""Memory of a process that takes much, writes it to a file and lets it go, over and over. Of glibc only; elsewhere nothing happens.

By default each thread of a process keeps an arena of its own: what one lets go of is no use to the others. pyarrow has an allocator of its own
beside, and is told to use this one by ``ARROW_DEFAULT_MEMORY_POOL=system``, which it looks for when it is imported.
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
    """From now on all threads take memory from one place. Whether that can be had; call it before there are threads."""
    libc = _libc()
    return libc is not None and bool(libc.mallopt(_ARENA_MAX, 1))


def give_back() -> None:
    """What is free goes to the operating system. Takes about a millisecond; what is taken again costs a little more."""
    pa.default_memory_pool().release_unused()
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)
