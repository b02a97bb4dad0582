"""The faults of reading statements in a server's log; :mod:`tests.mutants.faults` lists them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_STATEMENT_TESTS = ("tests/unit/datastores/mysql/log/test_statements.py",)

STATEMENT_FAULTS: list[Fault] = [
    Fault(
        name="statement-name-cut-at-a-symbol",
        file="datastores/mysql/decode/lexer.py",
        old='else r"[0-9A-Za-z_$\\x80-\\U0010ffff]"',
        new='else r"[\\w$]"',
        tests=("tests/unit/datastores/mysql/decode/test_statement.py",),
        promise="a barrier goes to the table that lost rows, not to one whose name begins like it",
    ),
    Fault(
        name="statement-column-taken-for-an-alteration",
        file="datastores/mysql/decode/statement.py",
        old='            yield first, tokens.word\n        _go_to(tokens, ",")\n        tokens.next()\n',
        new="            yield first, tokens.word\n",
        tests=("tests/unit/datastores/mysql/decode/test_statement.py",),
        promise="a column that is called like a keyword removes no rows",
    ),
    Fault(
        name="statement-barrier-undone-by-a-rollback",
        file="datastores/mysql/log/statements.py",
        old="            self._encoder.truncate(*barrier)\n\n    def unread",
        new="            pass\n\n    def unread",
        tests=_STATEMENT_TESTS,
        promise="a table that a failed statement dropped has its barrier",
    ),
    Fault(
        name="tables-of-a-database-not-durable",
        file="datastores/mysql/log/reader.py",
        old="        self._tables.catalog.save()\n",
        new="",
        tests=("tests/unit/datastores/mysql/log/test_reader.py",),
        promise="a dropped database has barriers for tables that were met before a crash",
    ),
    Fault(
        name="unread-statements-share-a-segment",
        file="datastores/mysql/log/walk.py",
        old="                self.ends = False\n                self.encoder.end_transaction(0)\n                "
        "return Step.CUT\n",
        new="                self.ends = False\n                self.encoder.end_transaction(0)\n                "
        "return Step.PROGRESS\n",
        tests=(*_STATEMENT_TESTS, "tests/unit/datastores/mysql/log/test_reader.py"),
        promise="a flow that skips one statement passes no other one",
    ),
    Fault(
        name="unread-statement-passed-by-everybody",
        file="caravan/flow.py",
        old="        return not broken.tables or not all(map(self.filter.wants_none_of, broken.tables))\n",
        new="        return not broken.tables or not any(map(self.filter.wants_none_of, broken.tables))\n",
        tests=("tests/unit/caravan/test_flow.py",),
        promise="a flow that wants one of the tables that may lack an update is held",
    ),
    Fault(
        name="case-of-a-table-ignored",
        file="datastores/mysql/server/catalog.py",
        old="            found = self._folded.get(_folded(name), name)\n",
        new="            found = name\n",
        tests=_STATEMENT_TESTS,
        promise="a barrier has the name by which subscribers know the table",
    ),
]
