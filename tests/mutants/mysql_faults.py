"""The faults of the MySQL and MariaDB source; :mod:`tests.mutants.faults` lists them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

__all__ = ["MYSQL_FAULTS"]

_WALK = "publisher/source/mysql/walk.py"
_WALK_TESTS = ("tests/unit/publisher/source/mysql/test_walk.py",)

MYSQL_FAULTS: list[Fault] = [
    Fault(
        name="tail-takes-silence-for-the-end",
        file="wormhole/cli/segment_stream.py",
        old="                    silent(place, end.place)\n",
        new="                    return\n",
        tests=("tests/unit/wormhole/cli/test_segment_stream.py",),
        promise="tail --no-follow ends at the place where the log ended, not when nothing came for a while",
    ),
    Fault(
        name="mysql-any-old-file-proves-the-history",
        file="publisher/source/mysql/continuity.py",
        old="    newest = max(left)\n",
        new="    newest = min(left)\n",
        tests=("tests/unit/publisher/source/mysql/test_continuity.py",),
        promise="a restored copy, which has the oldest files too, is not taken for the server that was read",
    ),
    Fault(
        name="mysql-read-elsewhere-and-forgotten",
        file="publisher/source/mysql/histories.py",
        old='            self._known[-1]["read"] = read.delivered\n',
        new="            pass\n",
        tests=("tests/unit/publisher/source/mysql/test_histories.py",),
        promise="what was delivered from another server and no log holds any more is reported",
    ),
    Fault(
        name="mysql-lost-end-of-a-log-unseen",
        file="publisher/source/mysql/continuity.py",
        old="    if not cut and not gone:\n",
        new="    if not gone:\n",
        tests=("tests/unit/publisher/source/mysql/test_continuity.py",),
        promise="a server that lost the end of its log is noticed although datamarkers lie before it",
    ),
    Fault(
        name="mysql-one-answer-begins-a-history",
        file="publisher/source/mysql/histories.py",
        old="                believe(f\"the server is {view.identity}, no longer {last['server']}\")\n",
        new="",
        tests=("tests/unit/publisher/source/mysql/test_histories.py",),
        promise="one damaged answer does not begin another history",
    ),
    Fault(
        name="mysql-one-damaged-event-holds-flows",
        file="publisher/source/mysql/reader.py",
        old="        return self._confirmed(error, self._place)\n",
        new="        return error\n",
        tests=("tests/unit/publisher/source/mysql/test_reader.py",),
        promise="an error of the stream is looked for once more before flows are held for it",
    ),
    Fault(
        name="mysql-gtids-lost-from-a-marker",
        file="publisher/source/mysql/delivered.py",
        old="                self._set.add(name, first, last)\n",
        new="                self._set.add(name, first, first)\n",
        tests=("tests/unit/publisher/source/mysql/test_delivered.py",),
        promise="a datamarker names every transaction before it, so that another copy goes on there",
    ),
    Fault(
        name="mysql-end-of-what-was-rolled-back-handed-on",
        file="wormhole/decode/mysql/encoder.py",
        old="        if self._tx_taken:\n            # The next",
        new="        if False:\n            # The next",
        tests=_WALK_TESTS,
        promise="a transaction that was handed on in part and then rolled back is told",
    ),
    Fault(
        name="mysql-torn-file-is-a-dead-end",
        file=_WALK,
        old="            if not is_torn(refused) or not self._past_torn_file():\n",
        new="            if True:\n",
        tests=_WALK_TESTS,
        promise="a reader goes on at the next file after a crash of the server, as the server does",
    ),
    Fault(
        name="rolled-back-part-taken-for-the-next-transaction",
        file="caravan/buffer.py",
        old="            return run.transaction_id(tx) != begun.id or (same and run.tx_file[tx] != begun.file)\n",
        new="            return run.transaction_id(tx) != begun.id\n",
        tests=("tests/property/test_transaction_ends.py",),
        promise="updates of a transaction with the number of one that was rolled back are not skipped",
    ),
    Fault(
        name="end-of-a-transaction-not-told",
        file="wormhole/wire/endings.py",
        old="            self._held, parsed = _cut_last(parsed)\n",
        new="            pass\n",
        tests=("tests/unit/wormhole/wire/test_endings.py",),
        promise="an update ends its transaction however the log was cut",
    ),
    Fault(
        name="mysql-savepoint-ignored",
        file=_WALK,
        old="        elif encoder.back_to(self._savepoints[name]):\n",
        new="        elif False:\n",
        tests=_WALK_TESTS,
        promise="what a transaction undid is not delivered",
    ),
    Fault(
        name="mysql-prepared-handed-on-before-its-commit",
        file=_WALK,
        old="            self._prepared.keep(ended.xid)\n",
        new="            self._inner.append((self._prepared.release_open(), True))\n            return\n",
        tests=_WALK_TESTS,
        promise="what is prepared is delivered with its commit only",
    ),
    Fault(
        name="mysql-unreadable-table-skipped-in-silence",
        file=_WALK,
        old="        self.broken.update(fresh)\n",
        new="",
        tests=_WALK_TESTS,
        promise="rows that cannot be read hold their shard",
    ),
    Fault(
        name="mysql-statement-skipped-in-silence",
        file=_WALK,
        old="        elif kind is Kind.DML and not encoder.suppress:\n            raise _statement_format(query.sql)\n",
        new="",
        tests=_WALK_TESTS,
        promise="changes logged as statements are never taken for none",
    ),
    Fault(
        name="mysql-another-transaction-before-the-marker",
        file="publisher/source/mysql/scan.py",
        old="        if anchor is None or found or last is None or last is seen:\n",
        new="        if anchor is None or found or last is None or last is seen or True:\n            found = True\n",
        tests=("tests/unit/publisher/source/mysql/test_scan.py",),
        promise="the transaction before a datamarker is compared: another one is divergence",
    ),
    Fault(
        name="mysql-transaction-torn-by-a-crash-of-the-server",
        file=_WALK,
        old="            if self._drop_open(lost=True):\n",
        new="            if self._drop_open(lost=True) and False:\n",
        tests=_WALK_TESTS,
        promise="half a transaction of a server that crashed is told",
    ),
]
