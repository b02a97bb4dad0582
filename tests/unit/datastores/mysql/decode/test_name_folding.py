from __future__ import annotations

import pytest

from datastores.mysql.decode.name_folding import fold, fold_newest, savepoint_key


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("Shop", "shop"),
        ("ÄÖÜ_Я_Ω", "äöü_я_ω"),
        ("İ", "i"),
        ("ß", "ß"),
        # Letters that are younger than the servers' table, and one whose lower case is.
        ("ȻԀ", "ȻԀ"),
        ("ẞ", "ẞ"),
    ],
)
def test_as_the_servers_write_names_in_lower_case(name: str, folded: str) -> None:
    assert fold(name) == folded
    assert fold_newest(name) == fold_newest(folded)


def test_a_server_with_a_newer_table() -> None:
    assert fold_newest("ȻԀİ") == "ȼԁi"


def test_savepoints_are_equal_without_case_and_accents() -> None:
    assert savepoint_key("Étape") == savepoint_key("eTAPE") != savepoint_key("etap")
    assert savepoint_key("") == ""
