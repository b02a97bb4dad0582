"""Large values go back to the system when they are let go of: in a process of its own, since the allocator has one
state for all."""

from __future__ import annotations

import subprocess
import sys

from caravan.governor import Limits
from tests.support.eventually import PATIENCE_S
from wormhole.config.processes import PublisherConfig
from wormhole.host.allocator import LARGE

_MEASURED = """
import threading
from pathlib import Path
from wormhole.host.allocator import bound, give_back

def rss():
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) >> 10

print(bound(2))
kept = []

def work():
    # The first one that is freed would raise the size from which blocks are mapped apart, and the rest would lie in the heap.
    large = bytes(4 << 20)
    del large
    many = []
    for _ in range(64):
        many.append(b"x" * (1 << 20))
        kept.append(b"y" * 2_000)
    many.clear()

before = rss()
for _ in range(3):
    workers = [threading.Thread(target=work) for _ in range(2)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
print(rss() - before)
give_back()
"""  # noqa: E501


def test_large_values_are_given_back_at_once_whatever_small_ones_stay() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    bounded, grown = done.stdout.splitlines()
    if bounded == "True":
        assert int(grown) <= 16


def test_what_a_reader_hands_on_is_not_mapped_apart() -> None:
    """Its bytes, its frame's and an update more are taken and given back thousands of times a second. Two frames do not
    fit one message of a publisher."""
    large, frame = LARGE, PublisherConfig().max_frame
    assert Limits().read_bytes * 5 // 4 < large < frame
    assert 2 * Limits().read_bytes >= frame
