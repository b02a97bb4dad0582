"""Memory of a process that repeatedly fills much memory, writes it to a file and frees it:
:mod:`wormhole.host.allocator`, with pyarrow.

pyarrow has its own allocator. With ``ARROW_DEFAULT_MEMORY_POOL=system`` in the environment at its import it uses that
of the process.
"""

from __future__ import annotations

import pyarrow as pa

from wormhole.host import allocator

__all__ = ["give_back"]


def give_back() -> None:
    """Return free memory to the operating system. Takes about a millisecond. The next allocations take a bit longer."""
    pa.default_memory_pool().release_unused()
    allocator.give_back()
