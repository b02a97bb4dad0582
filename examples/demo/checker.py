"""Compares what was committed with what an application received. Pure.

A change is known by its serial number, which its value carries; a delete, which has no value, by table and key, because
a key is deleted once only. For each application:

* **lost**: committed and never received;
* **duplicate**: received again;
* **order violation**: within a shard, received for the first time after a later change was; received again, or out of
  order, within one epoch; received in an older epoch after a newer one had begun elsewhere; in a shard where the key
  does not belong; with a value or an update id that differs from the other receipts of the same change; or never
  committed at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from examples.demo.journal import Commit, Receipt
from wormhole.model.sharding import shard_of_hash

__all__ = ["Checker", "Verdict", "percentile"]

Content = Mapping[tuple[str, str], str]
Window = tuple[int, int]


@dataclass(slots=True)
class Verdict:
    """What one application received. Times in milliseconds, from when the write was due to when the callback began.

    ``steady``: the changes that were neither due nor under way while a kill was being recovered from.
    ``differs``: keys whose last received value is not what the store holds.
    """

    application: str
    updates: int = 0
    received: int = 0
    duplicates: int = 0
    lost: list[Commit] = field(default_factory=list[Commit])
    violations: list[str] = field(default_factory=list[str])
    differs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    latencies: list[float] = field(default_factory=list[float])
    steady: list[float] = field(default_factory=list[float])

    @property
    def good(self) -> bool:
        """Nothing lost, nothing out of order, and the same content as the store."""
        return not (self.lost or self.violations or self.differs)


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that ``part`` of the values do not exceed (nearest rank); 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0


class Checker:
    """Knows what was committed; :meth:`check` judges one application after the other.

    ``shards``: number of hash shards of log ``log``. ``content``: what the store holds in the end.
    ``disturbed``: nanosecond intervals from a kill to the moment when everything it delayed was delivered.
    """

    def __init__(
        self, commits: Iterable[Commit], log: str, shards: int, content: Content, disturbed: Sequence[Window] = ()
    ) -> None:
        self._commits = {commit.serial: commit for commit in commits}
        self._deletes = {(c.table, c.key): c.serial for c in self._commits.values() if c.digest == "-"}
        self._content = content
        self._disturbed = disturbed
        self._shard: dict[int, str] = {}
        self._ordinal: dict[int, int] = {}
        sizes: Counter[str] = Counter()
        for serial in sorted(self._commits):
            shard = shard_of_hash(log, self._commits[serial].key.encode(), shards)
            self._shard[serial], self._ordinal[serial] = shard, sizes[shard]
            sizes[shard] += 1
        self._ids: dict[int, str] = {}
        self._serials: dict[str, int] = {}

    def serial(self, receipt: Receipt) -> int | None:
        """The committed change that was received, ``None`` when nothing like it was committed."""
        serial = receipt.serial or self._deletes.get((receipt.table, receipt.key), 0)
        commit = self._commits.get(serial)
        if commit is None or (commit.table, commit.key, commit.digest) != (receipt.table, receipt.key, receipt.digest):
            return None
        return serial

    def check(self, application: str, received: Mapping[str, Sequence[Receipt]], drop: int | None = None) -> Verdict:
        """``received``: by subscriber, each in the order of its journal.

        ``drop``: behave as if this serial never arrived.
        """
        verdict = Verdict(application, updates=len(self._commits))
        shards: dict[str, dict[int, list[tuple[int, Receipt]]]] = {}
        holder: dict[tuple[str, int], str] = {}
        for subscriber, receipts in received.items():
            for receipt in receipts:
                serial = self._known(receipt, subscriber, verdict)
                if serial is None or serial == drop:
                    continue
                verdict.received += 1
                if holder.setdefault((receipt.shard, receipt.epoch), subscriber) != subscriber:
                    verdict.violations.append(f"epoch {receipt.epoch} of {receipt.shard} was at two subscribers")
                shards.setdefault(receipt.shard, {}).setdefault(receipt.epoch, []).append((serial, receipt))
        first: dict[int, int] = {}
        last: dict[tuple[str, str], str] = {}
        for _, epochs in sorted(shards.items()):
            self._check_shard(epochs, verdict, first, last)
        verdict.duplicates = verdict.received - len(first)
        verdict.lost = [commit for serial, commit in sorted(self._commits.items()) if serial not in first]
        have = {key: hashed for key, hashed in last.items() if hashed != "-"}
        verdict.differs = sorted(key for key in have.keys() | self._content if have.get(key) != self._content.get(key))
        self._measure(first, verdict)
        return verdict

    def _known(self, receipt: Receipt, subscriber: str, verdict: Verdict) -> int | None:
        serial = self.serial(receipt)
        what = f"{receipt.table} {receipt.key} (update {receipt.update_id}) at {subscriber}"
        if serial is None:
            verdict.violations.append(f"{what}: was never committed like this")
            return None
        if receipt.shard != self._shard[serial]:
            verdict.violations.append(f"{what}: came in shard {receipt.shard}, belongs to {self._shard[serial]}")
        known = self._ids.setdefault(serial, receipt.update_id)
        other = self._serials.setdefault(receipt.update_id, serial)
        if known != receipt.update_id or other != serial:
            verdict.violations.append(f"{what}: the same update id must mean the same change, here it was {known}")
        return serial

    def _check_shard(
        self,
        epochs: Mapping[int, Sequence[tuple[int, Receipt]]],
        verdict: Verdict,
        first: dict[int, int],
        last: dict[tuple[str, str], str],
    ) -> None:
        highest = -1
        previous_end = 0
        for epoch, receipts in sorted(epochs.items()):
            before = -1
            for serial, receipt in receipts:
                ordinal = self._ordinal[serial]
                what = f"{receipt.table} {receipt.key} (update {receipt.update_id}) in epoch {epoch}"
                if ordinal <= before:
                    verdict.violations.append(f"{what}: not after the one before it in the same epoch")
                elif ordinal < highest and serial not in first:
                    verdict.violations.append(f"{what}: came after a later one of {receipt.shard}")
                elif receipt.received_ns < previous_end:
                    verdict.violations.append(f"{what}: an older epoch of {receipt.shard} was still at work")
                before = ordinal
                highest = max(highest, ordinal)
                first.setdefault(serial, receipt.received_ns)
                last[receipt.table, receipt.key] = receipt.digest
            previous_end = max(previous_end, receipts[-1][1].received_ns)

    def _measure(self, first: Mapping[int, int], verdict: Verdict) -> None:
        for serial, received in first.items():
            due = self._commits[serial].scheduled_ns
            latency = (received - due) / 1e6
            verdict.latencies.append(latency)
            if not any(begin <= received and due <= end for begin, end in self._disturbed):
                verdict.steady.append(latency)
