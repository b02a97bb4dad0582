"""Runs blocking calls in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

__all__ = ["in_thread"]

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


async def in_thread(function: Callable[[Unpack[_Ts]], _T], *arguments: *_Ts) -> _T:
    """Run ``function``, which blocks, in a thread. Returns its result.

    A thread cannot be cancelled, and the next call may use the same objects. So a cancellation waits for the thread.
    """
    call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        raise
