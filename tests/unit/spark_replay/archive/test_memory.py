"""What is let go of is given back: in a process of its own, since allocators have one state for all."""

from __future__ import annotations

import subprocess
import sys

from tests.support.eventually import PATIENCE_S

_MEASURED = """
import threading
from pathlib import Path
from spark_replay.archive.memory import give_back
from wormhole.host import allocator

def rss():
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) >> 10

print(allocator.bound(1))
kept = []

def work():
    # Small ones above large ones: the top of the heap stays taken.
    many = [b"x" * 60_000 for _ in range(800)]
    kept.append(b"y" * 60_000)
    many.clear()

workers = [threading.Thread(target=work) for _ in range(4)]
for one in workers:
    one.start()
for one in workers:
    one.join()
before = rss()
give_back()
print(before - rss())
"""


def test_memory_of_all_threads_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    shared, freed = done.stdout.splitlines()
    if shared == "True":
        assert int(freed) >= 30
