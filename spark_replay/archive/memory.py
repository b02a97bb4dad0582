"""Memory of a process that takes much, writes it to a file and lets it go, over and over:
:mod:`wormhole.host.allocator`, with pyarrow.

pyarrow has an allocator of its own, and uses the process's one through ``ARROW_DEFAULT_MEMORY_POOL=system``, which
it looks for when it is imported.
"""

from __future__ import annotations

import pyarrow as pa

from wormhole.host import allocator

__all__ = ["give_back"]


def give_back() -> None:
    """What is free goes to the operating system. Takes about a millisecond; what is taken again costs a little more."""
    pa.default_memory_pool().release_unused()
    allocator.give_back()
