"""The key of a row in the log by a catalogue that may be newer: the right columns, or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datastores.postgres.decode.catalogue_keys import CatalogueColumn, CatalogueKey, KeyPlaces, places_of
from datastores.postgres.decode.messages import FULL, Relation, RelationColumn
from tests.support.postgres_messages import INT4, INT8, TEXT

A, B, C = (CatalogueColumn(n, name, INT4) for n, name in enumerate("abc", 1))
THE_KEY = 77


def _logged(names: str, kind: int = INT4) -> Relation:
    return Relation(9, "shop", "t", FULL, tuple(RelationColumn(name, kind, -1, True) for name in names))


def _key(*columns: CatalogueColumn, key: str, settled: bool | None = True) -> CatalogueKey:
    """``key``: names of the key's columns."""
    found = tuple(replace(column, in_key=column.name in key) for column in columns)
    return CatalogueKey(found, THE_KEY if key else 0, settled)


def _places(logged: str, found: CatalogueKey, before: KeyPlaces | None = None) -> object:
    """Positions, or the problem."""
    answer = places_of(_logged(logged), found, before)
    return answer.problem or answer.places


def test_a_key_that_is_older_is_found_by_its_names() -> None:
    assert _places("abc", _key(A, B, C, key="c")) == (2,)
    assert _places("cab", _key(C, A, B, key="ab")) == (1, 2)
    assert _places("abc", _key(A, B, C, key="")) == ()


@pytest.mark.parametrize("settled", [None, False])
def test_a_key_that_may_be_newer_is_none(settled: bool | None) -> None:
    newer = _key(A, B, key="b", settled=settled)
    assert "the primary key that the catalogue has (b) may be newer" in str(_places("ab", newer))


def test_the_constraint_of_an_earlier_message_is_still_the_key() -> None:
    newer = _key(A, B, key="b", settled=None)
    assert _places("ab", newer, KeyPlaces((1,), "", THE_KEY, (2,), (INT4,))) == (1,)
    assert "may be newer" in str(_places("ab", newer, KeyPlaces((1,), "", 76, (2,), (INT4,))))
    assert "may be newer" in str(_places("ab", newer, KeyPlaces()))


def test_a_column_with_a_new_type_has_the_key_made_anew() -> None:
    remade = _key(A, replace(B, settled=False, remade=True), key="b", settled=None)
    assert _places("ab", remade, KeyPlaces((1,), "", 76, (2,), (INT8,))) == (1,)
    assert "may be newer" in str(_places("ab", remade, KeyPlaces((1,), "", 76, (2,), (INT4,)))), "the type is the same"
    assert "may be newer" in str(_places("ab", remade, KeyPlaces((0,), "", 76, (1,), (INT8,)))), "of another column"
    before_it = places_of(_logged("ab", INT8), remade, KeyPlaces((1,), "", 76, (2,), (INT8,)))
    assert "cannot be told" in before_it.problem


def test_a_key_that_was_dropped() -> None:
    known = KeyPlaces((0,), "", THE_KEY, (1,), (INT4,))
    gone = "does not have its primary key any more"
    assert gone in str(_places("ab", _key(A, B, key="", settled=None), known))
    assert gone in str(_places("ab", _key(A, B, key="", settled=False)))
    assert _places("ab", _key(A, B, key="", settled=True), known) == ()
    assert _places("ab", _key(A, B, key="", settled=None)) == ()


@pytest.mark.parametrize(
    ("logged", "columns", "key", "expected"),
    [
        ("ab", (replace(A, name="z", settled=False), B), "z", (0,)),
        ("ab", (A, replace(B, name="z", settled=False)), "z", (1,)),
        # The names were swapped since.
        ("ab", (replace(A, name="b", settled=False), replace(B, name="a", settled=False)), "b", (0,)),
        # A column before it was dropped long ago, and one since.
        ("bc", (replace(A, dropped=True), B, replace(C, name="z", settled=False)), "z", (1,)),
        ("abc", (replace(A, dropped=True, settled=False), B, replace(C, name="z", settled=False)), "z", None),
        ("abc", (replace(A, dropped=True, settled=False), B, C), "c", (2,)),
        # The log may have a generated column, or not.
        ("abc", (replace(A, generated=True), B, replace(C, name="z", settled=False)), "z", None),
        # What is before it is not what the log has there.
        ("ac", (A, B, replace(C, name="z", settled=False)), "z", None),
        ("xb", (A, replace(B, name="z", settled=False)), "z", None),
        # Neither its type nor its name may be another one.
        ("ab", (replace(A, type=INT8), B), "a", None),
        ("ab", (replace(A, type=INT8, settled=False), B), "a", None),
        ("ab", (A, C), "c", None),
    ],
)
def test_a_column_is_found_where_it_was(
    logged: str, columns: tuple[CatalogueColumn, ...], key: str, expected: tuple[int, ...] | None
) -> None:
    found = _places(logged, _key(*columns, key=key))
    if expected is None:
        assert f"has a column {key} which cannot be told" in str(found)
    else:
        assert found == expected


def test_two_columns_of_a_key_are_never_one_of_the_log() -> None:
    """One has kept its row of the catalogue, the other one was renamed, and the place of that has the first one's."""
    first = replace(A, name="z", settled=False)
    assert "were renamed since" in str(_places("ab", _key(first, replace(B, name="a"), key="za")))


def test_types_of_other_columns_do_not_matter() -> None:
    columns = (RelationColumn("a", INT4, -1, True), RelationColumn("b", TEXT, -1, True))
    relation = Relation(9, "shop", "t", FULL, columns)
    assert places_of(relation, _key(A, B, key="a"), None).places == (0,)
