"""SQL that is run or suggested: every name and text in it went through one function for each dialect."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from datastores.mysql import sql_text as mysql
from datastores.mysql.existing_rows.definition import no_privilege
from datastores.postgres import sql_text as postgres
from datastores.postgres.decode.catalogue_keys import LoggedKeys
from datastores.postgres.decode.messages import Relation
from datastores.postgres.decode.tables import Tables
from scripts.prepare import ROOT
from wormhole.model.sharding import Sharding

FOLDERS = ("datastores", "wormholectl", "wormhole", "monitor")
VERB = re.compile(r"\b(?:ALTER|GRANT|REVOKE|CREATE|DROP|INSERT INTO|DELETE FROM|TRUNCATE) ")
SQL = re.compile(rf"{VERB.pattern}[A-Z]")
NAMED = re.compile(r"\b(?:TABLE|USER|ROLE|PUBLICATION|SCHEMA|DATABASE|ON|TO|INTO|FROM)(?: IF (?:NOT )?EXISTS)? $")
QUOTES = re.compile(r"quote|sql_name|account_name|literal\(|\.sql\b")
# A list that was quoted where it was made, by the module and the text of the expression.
MADE_BEFORE = {
    ("datastores/postgres/doctor/publication.py", "listed"),
    ("datastores/mysql/server/required_settings.py", "scope"),
    *(("datastores/postgres/capture/statements.py", value) for value in ("table", "opening", "opened")),
}


def statements(source: str) -> Iterator[tuple[int, str, str, str]]:
    """For each value in a text with SQL: the line, the expression, and the text before and after it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            if not any(isinstance(part, ast.Constant) and VERB.search(str(part.value)) for part in node.values):
                continue
            parts = [
                str(part.value) if isinstance(part, ast.Constant) else f"\0{ast.unparse(part.value)}\0"  # type: ignore[attr-defined]
                for part in node.values
            ]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = [re.sub(r"\{(\w+)\}", "\0\\1\0", node.value)]  # for `str.format`
        else:
            continue
        text = "".join(parts)
        if SQL.search(text) and text.count("\0") % 2 == 0:
            pieces = text.split("\0")
            for at in range(1, len(pieces), 2):
                yield node.lineno, pieces[at], pieces[at - 1], pieces[at + 1]


def quoted_names(source: str) -> set[str]:
    """Variables that are given what was quoted."""
    found = re.findall(r"^\s*(\w+(?:, \w+)*) = .*(?:quote|sql_name|account_name|literal\().*$", source, re.MULTILINE)
    return {name for names in found for name in names.split(", ")}


def test_no_sql_is_formatted_beside_the_functions_that_quote() -> None:
    found, seen = [], 0
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            where, source = str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
            if not VERB.search(source):
                continue
            known = quoted_names(source)
            for line, value, before, after in statements(source):
                seen += 1
                by_hand = before[-1:] in {"'", '"', "`"} and after[:1] == before[-1:]
                constant = value.strip("_").isupper()  # a name of ours
                bare = NAMED.search(before) and not QUOTES.search(value) and value not in known and not constant
                if by_hand or (bare and (where, value) not in MADE_BEFORE):
                    found.append(f"{where}:{line}: {before[-30:]}{{{value}}}{after[:10]}")
    assert seen > 30
    assert not found, "\n".join(found)


def test_nothing_doubles_quotes_beside_them() -> None:
    doubled = re.compile(r"""replace\(\s*(?:'"', '""'|"'", "''"|'`', '``'|"`", "``")\)""")
    found = [
        str(file.relative_to(ROOT))
        for folder in ("datastores", "wormholectl")
        for file in sorted((ROOT / folder).rglob("*.py"))
        if file.name != "sql_text.py" and doubled.search(file.read_text(encoding="utf-8"))
    ]
    assert not found


HOSTILE = "t` ; DROP USER 'x'@'%'; -- \"; DROP ROLE y; \\"


def hint_about(identity: str) -> str:
    """What is suggested for a table of that name whose key is not known, or does not identify a row."""
    logged = LoggedKeys(repeated=frozenset({1}))
    tables = Tables("log", Sharding("log"), find_key=lambda *_: None, find_logged=lambda: (1, logged))
    error = tables.learn(Relation(1, "public", HOSTILE, identity, ()), 0).error
    assert error is not None
    return error.hint or ""


def test_a_hostile_name_stays_one_name() -> None:
    assert mysql.quoted("a`b") == "`a``b`"
    assert mysql.sql_name("d`", "t") == "`d```.`t`"
    assert mysql.account_name("o'x\\", "%") == r"'o''x\\'@'%'"
    assert postgres.quote_identifier('a"b') == '"a""b"'
    assert postgres.sql_name('s"', "t") == '"s"""."t"'
    assert postgres.quote_literal("o'x") == "'o''x'"


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        (hint_about("d"), postgres.sql_name("public", HOSTILE)),
        (hint_about("f"), postgres.sql_name("public", HOSTILE)),
        (no_privilege("d", HOSTILE, f"{HOSTILE}@%").hint, mysql.sql_name("d", HOSTILE)),
        (no_privilege("d", "t", f"{HOSTILE}@%").hint, mysql.account_name(HOSTILE, "%")),
    ],
)
def test_what_is_suggested_for_a_hostile_name_is_about_that_name(hint: str, name: str) -> None:
    assert name in hint
    assert HOSTILE not in hint.replace(name, "")
