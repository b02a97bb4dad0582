"""Faults in the publisher's side of a verification."""

from __future__ import annotations

from tests.mutants.runner import Fault

_SCANNER = "tests/unit/caravan/scan/test_scanner.py"
_PROGRESS = "tests/unit/caravan/backfill/test_progress.py"
_VERIFYING = ("tests/unit/wormhole/push/test_parking.py",)

VERIFY_FAULTS: list[Fault] = [
    Fault(
        name="a-key-of-another-shard-is-reported-as-gone",
        file="wormhole/model/segment.py",
        old="left_out=(*left_out, *foreign)",
        new="left_out=left_out",
        tests=(f"{_SCANNER}::test_a_key_read_alone_concerns_the_flow_of_its_shard_only",),
        promise="a row of another shard that was not sent is not removed",
    ),
    Fault(
        name="another-spelling-of-a-key-is-reported-as-gone",
        file="caravan/scan/scanner.py",
        old='shards=shards | dict.fromkeys(chunk.unclear, "")',
        new="shards=shards",
        tests=(f"{_SCANNER}::test_another_spelling_of_a_key_that_is_there_is_not_gone",),
        promise="a row that the datastore finds by another spelling of its key is not removed",
    ),
    Fault(
        name="a-verification-ends-before-the-application-listed-its-keys",
        file="publisher/flows/backfills.py",
        old="if backfill.finished and durable and self._compared(flow, backfill):",
        new="if backfill.finished and durable:",
        tests=("tests/integration/publisher/test_verification.py",),
        promise="a verification is done when nothing is left to compare",
    ),
    Fault(
        name="a-subscriber-compares-more-rows-than-it-was-sent",
        file="wormhole/push/verifying.py",
        old="if total.compared > table.sent:",
        new="if total.compared > 1 << 53:",
        tests=_VERIFYING,
        promise="what a subscriber reports has the bounds of what it was sent",
    ),
    Fault(
        name="a-table-ends-before-its-scan",
        file="wormhole/push/verifying.py",
        old="table.scans != 1 + table.confirms",
        new="not table.sent",
        tests=_VERIFYING,
        promise="no table is equal before all of its rows were sent",
    ),
    Fault(
        name="datamarkers-of-a-verification-are-alike",
        file="caravan/backfill/progress.py",
        old="for number in (self.generation, self._chunks):",
        new="for number in (self.generation, 0):",
        tests=(f"{_PROGRESS}::test_a_verification_begins_anew_and_its_datamarkers_differ",),
        promise="a verification is done when what it repaired is acknowledged",
    ),
    Fault(
        name="named-keys-stop-the-scan-of-a-table",
        file="caravan/scan/scanner.py",
        old="            asked = {}\n            chunk = tables.rows(work.table, (), window.begin)\n",
        new="            raise\n",
        tests=(f"{_SCANNER}::test_keys_that_a_subscriber_named_cost_no_flow_its_table",),
        promise="what a subscriber names costs no other flow its rows",
    ),
    Fault(
        name="an-epoch-after-a-verification-compares",
        file="publisher/push/stream.py",
        old="VerifyMode.NONE if backfill is None or backfill.ended else backfill.verify",
        new="VerifyMode.NONE if backfill is None else backfill.verify",
        tests=("tests/integration/publisher/test_verification.py",),
        promise="rows are compared while a verification runs, and delivered otherwise",
    ),
]
