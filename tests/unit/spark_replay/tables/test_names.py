"""Folders of tables: plain for libraries and readers, and never the same for two tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_replay.tables.names import folder_name


@pytest.mark.parametrize(
    ("table", "folder"),
    [
        ("shop.orders", "shop.orders"),
        ("shop.big orders", "shop.big~20orders"),
        ("shop.ö日", "shop.ö日"),
        ("_lead", "~5Flead"),
        ("..", "~2E."),
        ("a/b%20#?\\$", "a~2Fb~2520~23~3F~5C~24"),
    ],
)
def test_what_is_no_letter_and_no_digit_is_written_as_bytes(table: str, folder: str) -> None:
    assert folder_name(table) == folder


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_tables_never_share_a_folder(one: str, other: str) -> None:
    found = folder_name(one)
    assert (found == folder_name(other)) == (one == other)
    assert len(found.encode()) <= 200
    assert found[0] not in "_."
    assert not set(found) & set("/%#?\\ \0")


def test_long_names_keep_their_beginning() -> None:
    assert folder_name("日" * 128).startswith("日" * 20)
    assert folder_name("日" * 128) != folder_name("日" * 127)
