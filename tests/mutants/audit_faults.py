"""The faults around the audit: what counts deliveries must not itself be wrong."""

from __future__ import annotations

from tests.mutants.runner import Fault

__all__ = ["AUDIT_FAULTS"]

_KEEPER = "tests/unit/publisher/flows/test_books.py"
_BOOKS = "tests/unit/wormhole/audit/test_books.py"
_COMPARE = "tests/unit/spark_replay/audit/test_compare.py"

AUDIT_FAULTS: list[Fault] = [
    Fault(
        name="counts-that-were-not-stored-are-kept",
        file="publisher/flows/replays.py",
        old="            if not done:\n",
        new="            if not done and run is None:\n",
        tests=(
            "tests/unit/publisher/flows/test_replays.py::test_what_a_replay_delivered_is_booked_in_the_write_of_its_datamarker",
        ),
        promise="books and marker are stored together or not at all, replays included",
    ),
    Fault(
        name="replayed-loss-stays-lost",
        file="spark_replay/audit/compare.py",
        old="    if again.updates and not once.updates and missing.updates >= 0:\n",
        new="    if behind:\n",
        tests=(_COMPARE,),
        promise="what a replay brought after all is not called lost",
    ),
    Fault(
        name="last-changes-called-lost",
        file="spark_replay/audit/archived.py",
        old="                found.append((begin, end, Part.PARTLY))\n",
        new="                found.append((begin, end, Part.BOOKED))\n",
        tests=("tests/unit/spark_replay/audit/test_archived.py",),
        promise="what a replay of the last changes left out is not called lost",
    ),
    Fault(
        name="replay-counts-what-was-delivered-before",
        file="publisher/flows/books.py",
        old="        return books.counted_to(flow.filter.hash)\n",
        new="        return None\n",
        tests=(_KEEPER,),
        promise="each update counts as delivered once, replays included",
    ),
    Fault(
        name="audit-of-what-books-have-let-go",
        file="spark_replay/audit/compare.py",
        old="    past = is_past(number, now_s)\n",
        new="    past = False\n",
        tests=(_COMPARE,),
        promise="what is older than the books keep it is unaudited, not lost",
    ),
    Fault(
        name="booked-when-it-is-sent",
        file="wormhole/audit/ledger.py",
        old="            if interval.marker == marker:\n                break\n",
        new="            if not self._offered:\n                break\n",
        tests=(_KEEPER,),
        promise="books count what was acknowledged, and nothing else",
    ),
    Fault(
        name="delivered-twice-after-a-rewind",
        file="wormhole/audit/ledger.py",
        old="        if self._counted_to is None:\n            added(interval.counted, tallies)\n",
        new="        if True:\n            added(interval.counted, tallies)\n",
        tests=(_KEEPER,),
        promise="each update counts as delivered once",
    ),
    Fault(
        name="what-was-told-before-counts-again",
        file="wormhole/audit/books.py",
        old="            base = lives.pop(life, Counted())\n",
        new="            base = Counted()\n",
        tests=(_BOOKS,),
        promise="duplicates are the true ones",
    ),
    Fault(
        name="a-callback-that-lacks-is-not-seen",
        file="publisher/flows/books.py",
        old="            if lacks > 0:\n",
        new="            if lacks < 0:\n",
        tests=(_KEEPER,),
        promise="what was acknowledged without being processed is told at once",
    ),
    Fault(
        name="counts-parsed-rather-than-called",
        file="subscriber_sdk/flow_worker.py",
        old="        if missed:\n",
        new="        if missed and False:\n",
        tests=("tests/unit/subscriber_sdk/test_counts_told.py",),
        promise="what a subscriber says it processed is what was called",
    ),
    Fault(
        name="repeats-of-a-rollback-are-not-told",
        file="subscriber_sdk/flow_worker.py",
        old="            self._counts.processed(windows_in(parse_body(item.body), updates))\n",
        new="            pass\n",
        tests=("tests/unit/subscriber_sdk/test_counts_told.py",),
        promise="duplicates are the true ones",
    ),
    Fault(
        name="a-loss-hides-behind-repeats",
        file="subscriber_sdk/recovery.py",
        old="        self._counts.rolled_back()\n",
        new="        pass\n",
        tests=("tests/unit/subscriber_sdk/test_counts_told.py",),
        promise="a callback that never ran is seen beside callbacks that ran twice",
    ),
    Fault(
        name="what-is-to-come-again-is-called-a-duplicate",
        file="publisher/flows/books.py",
        old="            note(wanted, window, updates, now)\n",
        new="            pass\n",
        tests=(_KEEPER,),
        promise="no duplicate is told that did not happen",
    ),
    Fault(
        name="nobody-asks-what-the-dead-had",
        file="wormhole/audit/ledger.py",
        old="        unheard = {} if released else {",
        new="        unheard = {} if True else {",
        tests=(_KEEPER,),
        promise="what a killed subscriber may have done is told as possible",
    ),
    Fault(
        name="dead-with-the-publisher-and-forgotten",
        file="publisher/flows/books.py",
        old="                books.silent_in(one, wanted, *place)\n",
        new="                pass\n",
        tests=(_KEEPER,),
        promise="what died together with the publisher is told as possible",
    ),
    Fault(
        name="repaired-by-half-a-replay",
        file="wormhole/audit/book_page.py",
        old="        return self.redone >= self.end\n",
        new="        return self.redone > self.begin\n",
        tests=(_BOOKS,),
        promise="a finding is closed when all of its range was delivered again",
    ),
    Fault(
        name="a-finding-stays-for-ever",
        file="wormhole/audit/books.py",
        old="                        problem.redone = min(end, problem.end)\n",
        new="                        pass\n",
        tests=(_KEEPER,),
        promise="what a replay has delivered after all is no finding any more",
    ),
    Fault(
        name="books-count-what-was-sent-twice",
        file="wormhole/audit/ledger.py",
        old="            added(whole.counted, interval.counted)\n",
        new="            added(whole.counted, interval.counted)\n            added(whole.counted, interval.counted)\n",
        tests=(_COMPARE,),
        promise="each update counts as delivered once",
    ),
    Fault(
        name="books-without-their-marker",
        file="publisher/stores/markers/memory.py",
        old="                if stored is not None and accepts(stored, write):\n",
        new="                self._markers.books.setdefault(write.flow, {}).update(write.books)\n                "
        "if stored is not None and accepts(stored, write):\n",
        tests=("tests/contract/test_marker_store.py",),
        promise="books and marker are stored together or not at all",
    ),
    Fault(
        name="pending-is-called-lost",
        file="spark_replay/audit/archived.py",
        old="        return Part.AHEAD if places.ends else Part.UNAUDITED\n",
        new="        return Part.BOOKED if places.ends else Part.UNAUDITED\n",
        tests=("tests/unit/spark_replay/audit/test_archived.py",),
        promise="what was not acknowledged yet is open, not lost",
    ),
    Fault(
        name="differs-unseen",
        file="spark_replay/audit/compare.py",
        old="        elif one.missing.hash:\n",
        new="        elif one.missing.hash and False:\n",
        tests=(_COMPARE,),
        promise="a loss that a repeat hides in the count is seen in the checksum",
    ),
]
