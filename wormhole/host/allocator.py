"""How this process's allocator takes memory from the system and gives it back. Of glibc only; elsewhere nothing
happens.

By default each thread of a process keeps an arena of its own, and what is free there is of no use to the others.
Freeing one large block also raises the size from which blocks are mapped apart, up to 32 MiB: from then on large values
lie among small ones, and one small value keeps the memory of large ones from the system. So the most that a process
ever takes depends on the order of events, and on the machine's speed.
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
"""Above what a reader decodes at once (512 KiB), which is taken and given back thousands of times a second, and below
the values that make memory grow.
"""
_KEPT_FREE: Final = 1 << 20


def _libc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # no such thing outside of Unix
        return None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None


def bound(arenas: int) -> bool:
    """From now on at most so many arenas, and blocks of :data:`LARGE` bytes go back to the system once they are free.

    ``False`` where that is not possible. Call it before there are threads.
    """
    libc = _libc()
    if libc is None:
        return False
    wanted = ((_ARENA_MAX, arenas), (_MMAP_THRESHOLD, LARGE), (_TRIM_THRESHOLD, _KEPT_FREE))
    return all(libc.mallopt(parameter, value) for parameter, value in wanted)


def give_back() -> None:
    """What is free goes to the operating system. Takes about a millisecond; what is taken again costs a little more."""
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)
