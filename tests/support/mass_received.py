"""What an application was told of ``tests.support.mass_workload``, compared with it line by line while the file
grows."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.support.mass_workload import FAMILIES, change
from tests.system.harness.logs import Lines

_MOST_PROBLEMS = 20


class Received:
    """``log``: what `replayed_application` writes; ``keys``: of the workload.

    The store's number of a change is the workload's.

    ``state``: what the application holds, by (shard, key); ``count``: updates, repeats included; ``first_live``: per
    shard the first number that came from the log itself after the last one that was replayed.
    """

    def __init__(self, log: Path, keys: int) -> None:
        self._lines = Lines(log)
        self._keys = keys
        self._came: dict[str, bytearray] = {f"db1.{family}": bytearray() for family in FAMILIES}
        self._last: dict[tuple[str, int], int] = {}
        self._newest: dict[str, int] = defaultdict(int)
        self.count = 0
        self.replayed = 0
        self.state: dict[tuple[str, str], str] = {}
        self.first_live: dict[str, int] = {}
        self.problems: list[str] = []

    def look(self) -> int:
        """Read what was written since; how many updates there are now."""
        for line in self._lines.new():
            shard, epoch, number, replayed, key, value = line.split(" ")
            self._one(shard, int(epoch), int(number), replayed == "1", key, value)
        return self.count

    def _one(self, shard: str, epoch: int, number: int, replayed: bool, key: str, value: str) -> None:
        self.count += 1
        wanted = change(number, self._keys)
        if (shard, key, value) != (f"db1.{wanted.family}", wanted.key, wanted.value or "-"):
            self._wrong(f"{shard}: {number} came as {key} {value}, committed was {wanted}")
        if epoch < self._newest[shard]:
            self._wrong(f"{shard}: {number} came in epoch {epoch} after epoch {self._newest[shard]}")
        self._newest[shard] = epoch
        if number <= self._last.get((shard, epoch), 0):
            self._wrong(f"{shard}: {number} came after {self._last[shard, epoch]} in epoch {epoch}")
        self._last[shard, epoch] = number
        came = self._came[shard]
        if number >= len(came):
            came.extend(bytes(number + 1024 - len(came)))
        came[number] = 1
        if replayed:
            self.replayed += 1
            self.first_live.pop(shard, None)
        else:
            self.first_live.setdefault(shard, number)
        if value == "-":
            self.state.pop((shard, key), None)
        else:
            self.state[shard, key] = value

    def _wrong(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text)

    def missing(self, first: int, last: int, shard: str = "") -> list[int]:
        """Changes from ``first`` to ``last`` that never came; of this shard only, if one is given."""
        wanted = ((number, f"db1.{change(number, self._keys).family}") for number in range(first, last + 1))
        return [number for number, of in wanted if shard in ("", of) and not self._has(of, number)]

    def has(self, number: int) -> bool:
        """Whether this change came."""
        return self._has(f"db1.{change(number, self._keys).family}", number)

    def _has(self, shard: str, number: int) -> bool:
        came = self._came[shard]
        return number < len(came) and came[number] == 1
