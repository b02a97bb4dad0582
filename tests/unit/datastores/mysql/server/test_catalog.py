from __future__ import annotations

import json
from pathlib import Path

import pytest

from datastores.mysql.server.catalog import Catalog
from wormhole.model.errors import SourceUnavailable


def test_what_was_noted_is_there_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "tables.jsonl"
    first = Catalog(path)
    first.present([("shop", "b", True)], folds=False)
    first.note("shop", "a", False)
    first.note("größe", "\u2028", None)
    first.save()
    first.note("shop", "unsaved", True)
    second = Catalog(path)
    assert second.of_database("shop") == ["b", "a"]
    assert second.of_database("größe") == ["\u2028"]
    assert second.keys("shop", "b") == (True, False)
    assert second.keys("shop", "a") == (False, True)
    second.note("shop", "a", True)
    second.save()
    assert Catalog(path).keys("shop", "a") == (True, True)
    assert Catalog(path).keys("shop", "never") == (True, False)


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_line_that_was_cut_off_costs_no_other(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "tables.jsonl"
    catalog = Catalog(path)
    catalog.note("shop", "a", True)
    catalog.save()
    catalog.note("shop", "b", True)
    catalog.save()
    path.write_bytes(path.read_bytes()[:-cut])
    again = Catalog(path)
    assert again.of_database("shop") == (["a", "b"] if cut == 1 else ["a"])
    again.note("shop", "c", True)
    again.save()
    assert Catalog(path).of_database("shop") == [*again.of_database("shop")]
    assert "c" in Catalog(path).of_database("shop")


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "tables.jsonl"
    catalog = Catalog(path)
    catalog.present([("shop", "a", True)], folds=False)
    path.unlink()
    catalog.note("shop", "a", True)
    catalog.note("shop", "a", None)
    catalog.save()
    assert not path.exists()


def test_a_full_disk_is_reported_and_tried_again(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "folder" / "tables.jsonl")
    catalog.note("shop", "a", True)
    with pytest.raises(SourceUnavailable, match="cannot be written"):
        catalog.save()
    (tmp_path / "folder").mkdir()
    catalog.save()
    assert Catalog(tmp_path / "folder" / "tables.jsonl").of_database("shop") == ["a"]


def test_the_oldest_dropped_tables_are_forgotten_over_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "tables.jsonl"
    catalog = Catalog(path, most=2)
    catalog.present([("shop", "a", True)], folds=False)
    for name in "abcde":
        catalog.note("shop", name, True)
    catalog.present([("shop", "a", True)], folds=False)
    assert catalog.of_database("shop") == ["a", "d", "e"]
    assert "2 dropped tables were forgotten" in str(catalog.problem)
    assert [json.loads(line)[1] for line in path.read_text().splitlines()] == ["a", "d", "e"]
    assert not Catalog(path, most=2).problem


def test_names_without_case(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "tables.jsonl")
    catalog.note("Shop", "Users", True)
    assert catalog.spelled("shop", "users") == ("shop", "users")
    catalog.present([("shop", "ȼ", True)], folds=True)
    catalog.note("shop", "Ȼ", True)
    assert catalog.spelled("shop", "users") == ("Shop", "Users")
    assert catalog.spelled("shop", "Ȼ") == ("shop", "Ȼ")  # for the server another letter than the next
    assert catalog.spelled("shop", "ȼ") == ("shop", "ȼ")
    catalog.note("shop", "ԁ", True)
    assert catalog.spelled("shop", "Ԁ") == ("shop", "ԁ")  # a newer server
    assert catalog.spelled("shop", "Ԁ", exists=False) == ("shop", "Ԁ")  # an older one, where that is no table
    assert catalog.spelled("shop", "users", exists=False) == ("Shop", "Users")
    assert catalog.spelled("new", "one") == ("new", "one")
    assert catalog.of_database("SHOP") == ["Users", "ȼ", "Ȼ", "ԁ"]
    assert catalog.all() == [("Shop", "Users"), ("shop", "ȼ"), ("shop", "Ȼ"), ("shop", "ԁ")]
