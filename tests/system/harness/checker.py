"""Compares what an application received with what was committed. Pure.

For each flow it holds the list of updates that the flow has to receive, in commit order, and for each epoch the stretch
of that list that the epoch brought. The promises are then sentences about stretches:

* **order**: within an epoch each update is the next one of the list;
* **nothing lost**: an epoch begins at or before the end of what earlier epochs brought, and the list is reached to its
  end;
* **duplicates only as a repeated suffix**: the same two sentences; what they allow besides new updates is just that;
* **one owner per epoch**, **accepted epochs never fall**: of each process and shard;
* **transactions whole**: the end of a transaction stands at its last update and nowhere else, and datamarkers lie
  between transactions;
* **markers tell the truth**: what a marker covers was received before, and an epoch begins right after the marker it
  was assigned with;
* **a replay gives the same update**: place and commit time of a transaction are the same on every delivery. One that
  may come in pieces has two places: its beginning, for the updates of an unfinished piece, and its end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from caravan.rate import RateCap
from caravan.speeds import Pace
from tests.system.harness.logs import Assigned, Entry, Loss, Marker, Received, Revoked
from tests.system.harness.truth import Commit, Content, Sharder

_WHOLE: Final = RateCap(Pace.LEAST).piece
"""The least that a caravan of a busy publisher asks for at once: a transaction of so many bytes may come in pieces."""
_FRAME = 200
"""What an update takes beside its values, at most."""
_MOST_PROBLEMS = 20

Wanted = Callable[[Content], bool]
"""An application's filter."""


@dataclass(slots=True)
class Figures:
    """What to print. ``updates``: distinct ones that arrived; ``duplicates``: deliveries beyond these."""

    updates: int = 0
    duplicates: int = 0
    epochs: int = 0
    missing: int = 0


@dataclass(slots=True)
class _Stretch:
    """What one epoch brought: ``[first, next)`` of the flow's list. ``owner``: the process."""

    owner: str
    first: int
    next: int
    marker: int = -1
    revoked: bool = False


@dataclass(slots=True)
class _Flow:
    keys: list[tuple[int, int]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    contents: list[Content] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)
    epochs: dict[int, _Stretch] = field(default_factory=dict)

    def after(self, sequence: int) -> int:
        """How many updates of the list lie at or before the store's number ``sequence``."""
        return bisect_right(self.numbers, sequence)


class Checker:
    """One application. ``base``: the store's number before the first commit of the journal.

    Feed commits before the deliveries of them; everything found wrong is in ``problems`` (the first few, in words).
    """

    def __init__(self, application: str, sharder: Sharder, wanted: Wanted = lambda _: True, base: int = 0) -> None:
        self.application = application
        self.same_times = True
        """Whether updates keep their commit time: from RocksDB, whose log has none, only with one state folder."""
        self.same_places = True
        """Whether updates keep their place in the log: not where another copy may serve them."""
        self.problems: list[str] = []
        self.losses: list[Loss] = []
        self.deliveries = 0
        self._sharder = sharder
        self._wanted = wanted
        self._flows: dict[str, _Flow] = {}
        self._current: dict[tuple[str, str], int] = {}
        self._ends = set(range(base + 1))
        self._large: set[int] = set()
        self._seen: dict[int, dict[str, str]] = {}  # the places of each transaction, with the commit time told there
        self._sizes: dict[tuple[str, str], int] = {}

    # -- what is told

    def commit(self, commit: Commit) -> None:
        """A commit that certainly happened."""
        self._ends.add(commit.last)
        if sum(_FRAME + self._size(change, commit.step) for change in commit.changes) >= _WHOLE:
            self._large.add(commit.sequence)
        touched: dict[str, _Flow] = {}
        for index, change in enumerate(commit.changes):
            if self._wanted(change):
                shard = self._sharder(change)
                flow = touched[shard] = self._flows.setdefault(shard, _Flow())
                flow.keys.append((commit.sequence, index))
                flow.numbers.append(commit.sequence + commit.step * index)
                flow.contents.append(change)
                flow.ends.append(False)
        for flow in touched.values():
            flow.ends[-1] = True

    def _size(self, change: Content, step: int) -> int:
        """Bytes of the change's values: a server also tells what was there before."""
        size = int(change.value.partition(":")[0] or 0)
        if step:
            return size
        before = self._sizes.get((change.table, change.key), 0)
        self._sizes[change.table, change.key] = size
        return before + size

    def told(self, process: str, entry: Entry) -> None:
        """What the process (one run of a subscriber) was told, in its order."""
        match entry:
            case Received():
                self._received(process, entry)
            case Marker():
                self._marker(process, entry)
            case Assigned():
                self._assigned(process, entry)
            case Revoked():
                stretch = self._open(process, entry)
                if stretch is not None:
                    stretch.revoked = True
            case Loss():
                self.losses.append(entry)

    # -- the answer

    def reached(self) -> bool:
        """Whether every flow was brought to the end of its list."""
        return all(_reach(flow) >= len(flow.keys) for flow in self._flows.values())

    def reached_until(self, sequence: int) -> bool:
        """Whether everything up to the store's number ``sequence`` was received."""
        return all(_reach(flow) >= flow.after(sequence) for flow in self._flows.values())

    def figures(self) -> Figures:
        """Totals over all flows."""
        result = Figures()
        for flow in self._flows.values():
            reach = _reach(flow)
            brought = sum(stretch.next - stretch.first for stretch in flow.epochs.values())
            result.updates += reach
            result.duplicates += brought - reach
            result.epochs += len(flow.epochs)
            result.missing += len(flow.keys) - reach
        return result

    def check(self) -> list[str]:
        """Problems so far, with those between epochs."""
        found = list(self.problems)
        for shard, flow in sorted(self._flows.items()):
            reach = 0
            for epoch, stretch in sorted(flow.epochs.items()):
                if stretch.next > stretch.first and stretch.first > reach:
                    lost = flow.keys[reach]
                    found.append(
                        f"LOST: {self.application}/{shard} epoch {epoch} begins at update {stretch.first} "
                        f"({flow.keys[stretch.first]}) "
                        f"and {stretch.first - reach} updates from {reach} ({lost}, {flow.contents[reach]}) never came"
                    )
                reach = max(reach, stretch.next)
        return found

    def ends(self) -> Mapping[str, int]:
        """Per shard the store's number of the last update that is for its flow."""
        return {shard: flow.numbers[-1] for shard, flow in self._flows.items() if flow.numbers}

    def behind(self) -> Mapping[str, int]:
        """Flows that are not at the end of their list: how many updates are missing."""
        return {s: len(f.keys) - _reach(f) for s, f in sorted(self._flows.items()) if _reach(f) < len(f.keys)}

    # -- inside

    def _problem(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text)

    def _assigned(self, process: str, entry: Assigned) -> None:
        flow = self._flows.setdefault(entry.shard, _Flow())
        name = f"{self.application}/{entry.shard}"
        before = self._current.get((process, entry.shard))
        if before is not None:
            if entry.epoch <= before:
                self._problem(f"EPOCH FELL: {process} took {name} in epoch {entry.epoch} after epoch {before}")
            if not flow.epochs[before].revoked:
                self._problem(
                    f"OVERLAP: {process} took epoch {entry.epoch} of {name} before epoch {before} had ended there"
                )
        if entry.epoch in flow.epochs:
            self._problem(
                f"TWO OWNERS: epoch {entry.epoch} of {name} at {flow.epochs[entry.epoch].owner} and at {process}"
            )
            return
        self._current[process, entry.shard] = entry.epoch
        if entry.delivered not in self._ends:
            self._problem(
                f"INSIDE: {name} epoch {entry.epoch} begins after {entry.delivered}, where no transaction ends"
            )
        start = flow.after(entry.delivered)
        flow.epochs[entry.epoch] = _Stretch(process, start, start, entry.delivered)

    def _open(self, process: str, entry: Entry) -> _Stretch | None:
        """The stretch that the entry belongs to, ``None`` after a complaint."""
        current = self._current.get((process, entry.shard))
        flow = self._flows.get(entry.shard)
        what = type(entry).__name__.lower()
        if flow is None or current is None:
            self._problem(
                f"NOT ASSIGNED: {process} was told {what} of {self.application}/{entry.shard} before any epoch"
            )
            return None
        stretch = flow.epochs[current]
        if entry.epoch != current or stretch.revoked:
            self._problem(
                f"WRONG EPOCH: {process} was told {what} of {self.application}/{entry.shard} in epoch {entry.epoch}; "
                f"epoch {current} {'had ended' if stretch.revoked else 'is its own'} there"
            )
            return None
        return stretch

    def _received(self, process: str, entry: Received) -> None:
        self.deliveries += 1
        stretch = self._open(process, entry)
        if stretch is None:
            return
        flow = self._flows[entry.shard]
        key = (entry.sequence, entry.index)
        name = f"{self.application}/{entry.shard} epoch {entry.epoch}"
        here = stretch.next
        if here >= len(flow.keys) or flow.keys[here] != key:
            due = f"{flow.keys[here]} {flow.contents[here]}" if here < len(flow.keys) else "nothing"
            at = bisect_left(flow.keys, key)
            if at >= len(flow.keys) or flow.keys[at] != key:
                self._problem(f"INVENTED: {name} received {key} {entry.content}, which is not for it; due was {due}")
                return
            kind = "SKIPPED" if at > here else "AGAIN"
            self._problem(f"ORDER: {name} at {process}: {kind}: {key} {entry.content} came where {due} was due")
            stretch.next = at + 1
            return
        stretch.next = here + 1
        if entry.content != flow.contents[here]:
            self._problem(f"CHANGED: {name} received {key} as {entry.content}; committed was {flow.contents[here]}")
        if flow.ends[here] is not entry.ends:
            self._problem(
                f"TRANSACTION: {name}: {key} {'ends' if entry.ends else 'does not end'} its transaction, wrongly"
            )
        seen = self._seen.setdefault(entry.sequence, {})
        before = seen.setdefault(entry.place, entry.committed_at)
        moved = self.same_places and len(seen) > 1 + (entry.sequence in self._large)
        if moved or (self.same_times and entry.committed_at != before):
            now = (entry.place, entry.committed_at)
            self._problem(f"UNLIKE: {name}: transaction {entry.sequence} came at {now}, in all at {seen}")

    def _marker(self, process: str, entry: Marker) -> None:
        stretch = self._open(process, entry)
        if stretch is None:
            return
        name = f"{self.application}/{entry.shard} epoch {entry.epoch}"
        if entry.delivered not in self._ends:
            self._problem(f"INSIDE: {name} got a datamarker at {entry.delivered}, where no transaction ends")
        if entry.delivered < stretch.marker:
            self._problem(f"BACK: {name} got datamarker {entry.delivered} after {stretch.marker}")
        stretch.marker = max(stretch.marker, entry.delivered)
        covered = self._flows[entry.shard].after(entry.delivered)
        if covered > stretch.next:
            self._problem(
                f"AHEAD: {name} got datamarker {entry.delivered}, which covers {covered} updates, having "
                f"received {stretch.next}"
            )


def _reach(flow: _Flow) -> int:
    """Up to where the list was brought without a hole."""
    reach = 0
    for _, stretch in sorted(flow.epochs.items()):
        if stretch.first <= reach:
            reach = max(reach, stretch.next)
    return reach


def fenced_state(received: Iterable[Received]) -> tuple[dict[tuple[str, str], str], int]:
    """What an application holds that applies every update, repeats included, when it comes, with the epoch as fencing
    token.

    Also how many updates the token kept out: those of a handler that outlived its epoch while the shard was elsewhere
    already.
    """
    state: dict[tuple[str, str], str] = {}
    newest: dict[str, int] = {}
    late = 0
    for entry in sorted(received, key=lambda entry: entry.at):
        if entry.epoch < newest.setdefault(entry.shard, entry.epoch):
            late += 1
            continue
        newest[entry.shard] = entry.epoch
        content = entry.content
        if content.op == "delete":
            state.pop((content.table, content.key), None)
        else:
            state[content.table, content.key] = content.value
    return state, late


def owners_in_turn(flow: str, owners: Iterable[tuple[int, str]], *, may_return: bool = False) -> list[str]:
    """What is wrong with the publishers that assigned a flow: each epoch belongs to one, and none comes back after
    another, unless it ``may_return``."""
    found, past, last = [], set[str](), ""
    known: dict[int, str] = {}
    for epoch, publisher in sorted(owners):
        if known.setdefault(epoch, publisher) != publisher:
            found.append(f"TWO PUBLISHERS: epoch {epoch} of {flow} at {known[epoch]} and at {publisher}")
        elif publisher != last and publisher in past and not may_return:
            found.append(f"CAME BACK: {publisher} assigned epoch {epoch} of {flow} after {last}")
        past.add(publisher)
        last = publisher
    return found
