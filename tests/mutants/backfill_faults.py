"""Faults in how existing rows meet the log.

Those of the whole are looked for by the model alone, although unit tests find most of them too.
"""

from __future__ import annotations

from tests.mutants.runner import Fault

_MODEL = ("tests/property/test_backfill.py",)

BACKFILL_FAULTS: list[Fault] = [
    Fault(
        name="rows-are-read-before-what-the-log-shows-is-visible",
        file="caravan/scan/scanner.py",
        old="chunk = tables.chunk(work.table, after, until, limits, window.begin)",
        new='chunk = tables.chunk(work.table, after, until, limits, replace(window.begin, delivered="0"))',
        tests=_MODEL,
        promise="a row that was read never goes back behind a change that was delivered before it",
    ),
    Fault(
        name="touched-rows-are-not-brought-forward",
        file="caravan/scan/entering.py",
        old="in chain.from_iterable(pieces):",
        new="in ():",
        tests=_MODEL,
        promise="rows enter the log as they are at their place",
    ),
    Fault(
        name="window-closed-where-the-snapshot-lies",
        file="caravan/scan/entering.py",
        old="in chain.from_iterable(pieces):",
        new="in () if self.reached else chain.from_iterable(pieces):",
        tests=_MODEL,
        promise="changes between the snapshot and the place where its rows enter are in these rows",
    ),
    Fault(
        name="place-of-a-chunk-chosen-before-it-is-in-memory",
        file="caravan/scan/scanner.py",
        old="segment = entering.segment(window, lead.buffer.place, lead.marker)",
        new="segment = entering.segment(window, window.begin.order, window.begin)",
        tests=_MODEL,
        promise="rows are not put where flows have passed",
    ),
    Fault(
        name="a-segment-slips-between-the-last-look-and-the-rows",
        file="caravan/scan/entering.py",
        old=" or self._segments != window.segments:",
        new=":",
        tests=_MODEL,
        promise="rows enter behind no change that was not applied to them",
    ),
    Fault(
        name="the-lead-reads-on-during-the-last-look",
        file="caravan/scan/scanner.py",
        old="async with lead.appends if tries >= _FREE_TRIES else nullcontext():",
        new="async with nullcontext():",
        tests=("tests/unit/caravan/scan/test_scanner.py::test_rows_enter_however_fast_the_lead_reads",),
        promise="a log that never pauses does not keep rows out for ever",
    ),
    Fault(
        name="touched-keys-that-are-not-sent-are-not-named",
        file="caravan/scan/entering.py",
        old="replace(range_, left_out=left_out,",
        new="replace(range_, left_out=(),",
        tests=_MODEL,
        promise="an application deletes no row that exists, only since it was not among those read",
    ),
    Fault(
        name="rows-for-a-flow-behind-the-lead",
        file="caravan/flow.py",
        old="            and self.place == segment.end\n            and not self.resume_index\n",
        new="",
        tests=_MODEL,
        promise="a flow takes rows only at the place that they are of",
    ),
    Fault(
        name="generation-begun-inside-a-window",
        file="caravan/flow.py",
        old="            and self.begun <= chunk.not_before\n",
        new="",
        tests=_MODEL,
        promise="rows that a chunk leaves out were sent as changes in the same generation",
    ),
    Fault(
        name="partial-row-not-read-again",
        file="caravan/backfill/progress.py",
        old="        for key in chunk.again:\n",
        new="        for key in ():\n",
        tests=_MODEL,
        promise="a row whose changes do not say what it is, is read again",
    ),
    Fault(
        name="a-row-that-moved-in-part-is-not-read-again",
        file="caravan/flow.py",
        old="                    self.backfill.read_again(table, key)\n",
        new="                    pass\n",
        tests=_MODEL,
        promise="a row that moved out of a range that was not sent yet comes whole",
    ),
    Fault(
        name="a-rolled-back-transaction-stays-in-the-rows",
        file="caravan/scan/window.py",
        old="                if begun is not None and undone(segment, shard, self._place, begun):\n",
        new="                if False and begun is not None:\n",
        tests=("tests/unit/caravan/scan/test_rounds.py",),
        promise="what a server rolled back is in no row",
    ),
    Fault(
        name="progress-believed-after-a-change-of-the-filter",
        file="caravan/backfill/progress.py",
        old=" or source.data() != self.filter_hash.encode():",
        new=" or not source.data():",
        tests=("tests/unit/caravan/backfill/test_progress.py",),
        promise="a flow whose filter changed is sent the rows that pass now",
    ),
    Fault(
        name="a-number-is-used-for-two-keys",
        file="caravan/backfill/boundaries.py",
        old="        self.id = list_id\n        self._keys = {number: self._keys[number] for",
        new="        self._keys = {number: self._keys[number] for",
        tests=("tests/property/test_backfill_progress.py",),
        promise="progress is never read with the numbers of another list",
    ),
]
