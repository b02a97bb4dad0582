"""MySQL's GTIDs, JSON and statements against models: sets of Python, a writer of documents, names put into
statements."""

from __future__ import annotations

import copy
import json
import re
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from datastores.mysql.decode.gtid import GtidSet, MariaPosition
from datastores.mysql.decode.json_diff import apply_diffs
from datastores.mysql.decode.statement import Kind, classify
from tests.support import hot
from tests.support.mysql_json import Document, Opaque, binary, diff, text

JSON = "datastores.mysql.decode.json_text"


def both(name: str) -> list[ModuleType]:
    return [hot.interpreted(name)] + ([hot.compiled(name)] if "compiled" in hot.forms() else [])


UUIDS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "896e7882-18fe-11ef-ab88-22222d34d411")
SOURCES = (*UUIDS, f"{UUIDS[0]}:tag", f"{UUIDS[0]}:a_tag", f"{UUIDS[1]}:tag")
RUNS = st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(1, 40), st.integers(0, 8)), max_size=12)


def sets(runs: list[tuple[str, int, int]]) -> tuple[GtidSet, set[tuple[str, int]]]:
    found, model = GtidSet(), set()
    for source, first, more in runs:
        found.add(source, first, first + more)
        model |= {(source, number) for number in range(first, first + more + 1)}
    return found, model


def members(gtids: GtidSet) -> set[tuple[str, int]]:
    return {(s, n) for s in gtids.sources() for first, last in gtids.intervals(s) for n in range(first, last + 1)}


@given(RUNS, RUNS)
def test_gtid_sets_are_sets(left: list[tuple[str, int, int]], right: list[tuple[str, int, int]]) -> None:
    one, model_one = sets(left)
    two, model_two = sets(right)
    assert members(one) == model_one
    assert members(one.union(two)) == model_one | model_two
    assert members(one.subtract(two)) == model_one - model_two
    assert one.issubset(two) == (model_one <= model_two)
    assert (one == two) == (model_one == model_two)
    for source in SOURCES:
        assert [one.contains(source, n) for n in range(55)] == [(source, n) in model_one for n in range(55)]
        bounds = [bound for interval in one.intervals(source) for bound in interval]
        assert all(after - before > 1 for before, after in zip(bounds[1::2], bounds[2::2], strict=False))


@given(RUNS)
def test_gtid_sets_come_back_from_both_their_forms(runs: list[tuple[str, int, int]]) -> None:
    gtids, _ = sets(runs)
    assert GtidSet.parse(str(gtids)) == gtids
    assert GtidSet.decode(gtids.encode()) == gtids
    assert str(GtidSet.decode(gtids.encode())) == str(gtids)


@given(st.dictionaries(st.integers(0, 2**32 - 1), st.tuples(st.integers(1, 2**32 - 1), st.integers(0, 2**64 - 1))))
def test_mariadb_positions_come_back_from_their_text(last: dict[int, tuple[int, int]]) -> None:
    position = MariaPosition()
    for domain, (server, sequence) in last.items():
        position.advance(domain, server, sequence)
    again = MariaPosition.parse(str(position))
    assert again.domains() == last


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([-32768, 32767, 32768, 65535, 65536, -(2**31), 2**31, 2**32 - 1, 2**32]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(1e14, 1e17),
    WORDS,
    st.text("ab", min_size=120, max_size=140),
    st.builds(Opaque, st.sampled_from([16, 252, 255]), st.binary(max_size=130)),
)
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=20
)


@given(DOCUMENTS, st.booleans(), st.binary(max_size=3), st.binary(max_size=3))
def test_documents_are_shown_as_the_model_shows_them(value: Document, large: bool, before: bytes, after: bytes) -> None:
    data = binary(value, large)
    for module in both(JSON):
        assert module.json_text(before + data + after, len(before), len(before) + len(data)) == text(value)


@given(DOCUMENTS, st.data())
def test_changed_documents_are_shown_as_the_changed_model(value: Document, data: st.DataObject) -> None:
    model: Any = copy.deepcopy(value)
    diffs = b""
    for _ in range(data.draw(st.integers(0, 4))):
        parent, path = model, "$"
        while True:
            steps = [key for key in (parent if isinstance(parent, dict) else range(len(parent)) if isinstance(parent, list) else ())  # noqa: E501
                     if isinstance(parent[key], list | dict)]  # fmt: skip
            if not steps or data.draw(st.booleans()):
                break
            step = data.draw(st.sampled_from(steps))
            path += f"[{step}]" if isinstance(step, int) else f".{json.dumps(step)}"
            parent = parent[step]
        if not isinstance(parent, list | dict):
            break
        operation = data.draw(st.integers(0, 2))
        new: Document = data.draw(SCALARS)
        there = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        if operation == 1:
            key: Any = data.draw(WORDS) if isinstance(parent, dict) else data.draw(st.integers(0, len(parent)))
            if isinstance(parent, list):
                parent.insert(key, new)
            elif key in parent:
                continue
            else:
                parent[key] = new
        elif not there:
            continue
        else:
            key = data.draw(st.sampled_from(there))
            if operation == 0:
                parent[key] = new
            else:
                del parent[key]
        leg = f"[{key}]" if isinstance(parent, list) else f".{json.dumps(key, ensure_ascii=False)}"
        diffs += diff(operation, path + leg, *([] if operation == 2 else [new]))
    assert apply_diffs(text(value), diffs, 0, len(diffs)) == text(model)


@given(WORDS, WORDS, st.sampled_from(["", " ", "\n-- `x`\n", "/* , */", "/*!50100 ", "#\t'\n"]))
def test_names_come_back_from_statements(database: str, table: str, space: str) -> None:
    database, table = (re.sub("[\U00010000-\U0010ffff]", "?", name) for name in (database, table))
    quoted, quoted_database = (f"`{name.replace('`', '``')}`" for name in (table, database))
    assert classify(f"TRUNCATE{space} {quoted}{space}", "db").tables == (("db", table),)
    found = classify(f"DROP TABLE {space}IF EXISTS{space} {quoted_database}{space}.{quoted},{quoted} /* end */", "db")
    assert found.kind is Kind.DROP_TABLE
    assert found.tables == ((database, table), ("db", table))
