"""The faults around the audit: what counts deliveries must not itself be wrong."""

from __future__ import annotations

from tests.mutants.runner import Fault

_COUNTER = "tests/unit/publisher/flows/test_delivery_counter.py"
_COUNTS = "tests/unit/wormhole/audit/test_delivery_counts.py"
_COMPARE = "tests/unit/spark_replay/audit/test_compare.py"

AUDIT_FAULTS: list[Fault] = [
    Fault(
        name="counts-that-were-not-stored-are-kept",
        file="publisher/flows/records.py",
        old="            if not done:\n",
        new="            if not done and settled is None:\n",
        tests=(
            "tests/integration/publisher/flows/test_replays.py::test_what_a_replay_delivered_is_counted_in_the_write_of_its_datamarker",
        ),
        promise="counts and marker are stored together or not at all, replays included",
    ),
    Fault(
        name="replayed-loss-stays-lost",
        file="spark_replay/audit/compare.py",
        old="    if redelivered.updates and not once.updates and missing.updates >= 0:\n",
        new="    if behind:\n",
        tests=(_COMPARE,),
        promise="what a replay brought after all is not called lost",
    ),
    Fault(
        name="last-changes-called-lost",
        file="spark_replay/audit/archived.py",
        old="                found.append((begin, end, AuditPart.PARTIAL))\n",
        new="                found.append((begin, end, AuditPart.COUNTED))\n",
        tests=("tests/unit/spark_replay/audit/test_auditor.py",),
        promise="what a replay of the last changes left out is not called lost",
    ),
    Fault(
        name="replay-counts-what-was-delivered-before",
        file="publisher/flows/delivery_counter.py",
        old="        return counts.counted_to(flow.filter.hash)\n",
        new="        return None\n",
        tests=(_COUNTER,),
        promise="each update counts as delivered once, replays included",
    ),
    Fault(
        name="audit-of-what-counts-no-longer-have",
        file="spark_replay/audit/compare.py",
        old="    past = is_past(number, now_s)\n",
        new="    past = False\n",
        tests=(_COMPARE,),
        promise="what is older than the delivery counts is unaudited, not lost",
    ),
    Fault(
        name="counted-when-it-is-sent",
        file="wormhole/audit/sent_counts.py",
        old="            if interval.marker == marker:\n                break\n",
        new="            if not self._offered:\n                break\n",
        tests=(_COUNTER,),
        promise="what was acknowledged is counted, and nothing else",
    ),
    Fault(
        name="delivered-twice-after-a-rewind",
        file="wormhole/audit/sent_counts.py",
        old="tallies if self._counted_to is None else ",
        new="tallies if True else ",
        tests=(_COUNTER,),
        promise="each update counts as delivered once",
    ),
    Fault(
        name="what-was-told-before-counts-again",
        file="wormhole/audit/delivery_counts.py",
        old="            base = lives.pop(life, ProcessedCount())\n",
        new="            base = ProcessedCount()\n",
        tests=(_COUNTS,),
        promise="duplicates are the true ones",
    ),
    Fault(
        name="a-callback-that-lacks-is-not-seen",
        file="publisher/flows/delivery_counter.py",
        old="            if missing > 0:\n",
        new="            if missing < 0:\n",
        tests=(_COUNTER,),
        promise="what was acknowledged without being processed is reported at once",
    ),
    Fault(
        name="counts-parsed-rather-than-called",
        file="subscriber_sdk/work/flow_worker.py",
        old="        if missed and item.windows:\n",
        new="        if missed and False:\n",
        tests=("tests/unit/subscriber_sdk/work/test_counts_reported.py",),
        promise="what a subscriber says it processed is what was called",
    ),
    Fault(
        name="repeats-of-a-rollback-are-not-told",
        file="subscriber_sdk/work/flow_worker.py",
        old="            self._counts.processed(windows_in(parse_body(item.body), updates))\n",
        new="            pass\n",
        tests=("tests/unit/subscriber_sdk/work/test_counts_reported.py",),
        promise="duplicates are the true ones",
    ),
    Fault(
        name="a-loss-hides-behind-repeats",
        file="subscriber_sdk/work/recovery.py",
        old="        self._counts.rolled_back()\n",
        new="        pass\n",
        tests=("tests/unit/subscriber_sdk/work/test_counts_reported.py",),
        promise="a callback that never ran is seen beside callbacks that ran twice",
    ),
    Fault(
        name="what-is-to-come-again-is-called-a-duplicate",
        file="publisher/flows/delivery_counter.py",
        old="            note(filter_hash, window, updates, now)\n",
        new="            pass\n",
        tests=(_COUNTER,),
        promise="no duplicate is counted that did not happen",
    ),
    Fault(
        name="repaired-by-half-a-replay",
        file="wormhole/audit/window_counts.py",
        old="        return self.redelivered_to >= self.end\n",
        new="        return self.redelivered_to > self.begin\n",
        tests=(_COUNTS,),
        promise="a finding is closed when all of its range was delivered again",
    ),
    Fault(
        name="a-finding-stays-for-ever",
        file="wormhole/audit/delivery_counts.py",
        old="                        one.redelivered_to = min(end, one.end)\n",
        new="                        pass\n",
        tests=(_COUNTER,),
        promise="what a replay has delivered after all is no finding any more",
    ),
    Fault(
        name="what-was-sent-is-counted-twice",
        file="wormhole/audit/sent_counts.py",
        old="            added(whole.counted, interval.counted)\n",
        new="            added(whole.counted, interval.counted)\n            added(whole.counted, interval.counted)\n",
        tests=(_COMPARE,),
        promise="each update counts as delivered once",
    ),
    Fault(
        name="counts-without-their-marker",
        file="publisher/stores/markers/memory.py",
        old="                if stored is not None and accepts(stored, write):\n",
        new="                self._markers.counts.setdefault(write.flow, {}).update(write.counts)\n                "
        "if stored is not None and accepts(stored, write):\n",
        tests=("tests/contract/test_marker_store.py",),
        promise="counts and marker are stored together or not at all",
    ),
    Fault(
        name="pending-is-called-lost",
        file="spark_replay/audit/archived.py",
        old="        return AuditPart.PENDING if places.ends else AuditPart.UNAUDITED\n",
        new="        return AuditPart.COUNTED if places.ends else AuditPart.UNAUDITED\n",
        tests=("tests/unit/spark_replay/audit/test_auditor.py",),
        promise="what was not acknowledged yet is open, not lost",
    ),
    Fault(
        name="differs-unseen",
        file="spark_replay/audit/compare.py",
        old="    elif one.missing.hash:\n",
        new="    elif one.missing.hash and False:\n",
        tests=(_COMPARE,),
        promise="a loss that a repeat hides in the count is seen in the checksum",
    ),
]
