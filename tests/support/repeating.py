"""What goes on beside a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

__all__ = ["repeating"]


@contextmanager
def repeating(change: Callable[[], object], pause_s: float) -> Iterator[None]:
    """In a thread ``change`` is called again and again while the block lasts. What it raises ends that, and is raised
    at the block's end.
    """
    ends = Event()

    def repeat() -> None:
        while not ends.wait(pause_s):
            change()

    with ThreadPoolExecutor(1) as beside:
        repeated = beside.submit(repeat)
        try:
            yield
        finally:
            ends.set()
    repeated.result()
