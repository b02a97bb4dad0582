"""Bounds how this process's allocator takes memory from the system and gives it back. Works with glibc only; with other
libraries it does nothing.

By default each thread of a process keeps an arena of its own, and other threads cannot use the free memory of that
arena. Freeing one large block also raises the size from which blocks are mapped separately, up to 32 MiB. From then on
large values are placed among small ones, and one small value prevents the return of a large block to the system. So the
peak memory of a process depends on the order of events, and on the machine's speed.
"""

from __future__ import annotations

import ctypes
from typing import Final

__all__ = ["LARGE", "bound", "give_back"]

# Parameters of mallopt(3), by the numbers of malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

LARGE: Final = 768 << 10
"""The limit is above the 512 KiB that a reader decodes at once, because such a block is taken and freed thousands of
times a second. It is below the size of the values that make memory grow.
"""
_KEPT_FREE: Final = 1 << 20


def _libc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # a system without mallopt
        return None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None


def bound(arenas: int) -> bool:
    """Use at most ``arenas`` arenas from now on, and give blocks of :data:`LARGE` bytes back to the system when they
    are freed.

    Returns ``False`` if that is not possible. Call it before there are threads.
    """
    libc = _libc()
    if libc is None:
        return False
    wanted = ((_ARENA_MAX, arenas), (_MMAP_THRESHOLD, LARGE), (_TRIM_THRESHOLD, _KEPT_FREE))
    return all(libc.mallopt(parameter, value) for parameter, value in wanted)


def give_back() -> None:
    """Give free memory back to the operating system. It takes about a millisecond; taking memory again costs a little
    more.
    """
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)
