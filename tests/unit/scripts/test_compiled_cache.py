"""Compiled forms for the next checkout: whole, unchanged and one's own, or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts import compiled_cache
from scripts.compiled_cache import keep, place, take

DIGEST = "0123abcd"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "one" / "wormhole").mkdir(parents=True)
    (tmp_path / "two" / "wormhole").mkdir(parents=True)
    (tmp_path / "one" / "wormhole" / "a.so").write_bytes(b"compiled a")
    (tmp_path / "one" / "wormhole" / "b.so").write_bytes(b"compiled b")
    return tmp_path / "one"


@pytest.fixture
def cache(root: Path, tmp_path: Path) -> Path:
    keep(tmp_path / "cache", DIGEST, root, sorted(root.rglob("*.so")))
    return tmp_path / "cache"


def contents(root: Path) -> dict[str, bytes]:
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def test_another_checkout_gets_what_one_compiled(cache: Path, root: Path, tmp_path: Path) -> None:
    (tmp_path / "two" / "wormhole" / "a.so").write_bytes(b"old")
    assert take(cache, DIGEST, tmp_path / "two")
    assert contents(tmp_path / "two") == contents(root)


def test_other_sources_get_nothing(cache: Path, tmp_path: Path) -> None:
    assert not take(cache, "0123abce", tmp_path / "two")
    assert contents(tmp_path / "two") == {}


@pytest.mark.parametrize("damage", ["changed", "gone", "no sums"])
def test_a_damaged_set_is_not_taken_and_can_be_kept_anew(cache: Path, root: Path, tmp_path: Path, damage: str) -> None:
    file = cache / DIGEST / ("sums" if damage == "no sums" else "1")
    if damage == "changed":
        file.write_bytes(b"compiled ")
    else:
        file.unlink()
    assert not take(cache, DIGEST, tmp_path / "two")
    assert contents(tmp_path / "two") == {}
    keep(cache, DIGEST, root, sorted(root.rglob("*.so")))
    assert take(cache, DIGEST, tmp_path / "two")


@pytest.mark.parametrize("of", ["cache", "set"])
def test_a_folder_that_others_can_write_to_is_not_trusted(cache: Path, tmp_path: Path, of: str) -> None:
    (cache if of == "cache" else cache / DIGEST).chmod(0o777)
    assert not take(cache, DIGEST, tmp_path / "two")


def test_a_folder_of_another_user_is_not_trusted(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    assert not take(cache, DIGEST, tmp_path / "two")


def test_the_sets_used_last_stay(cache: Path, root: Path, tmp_path: Path) -> None:
    files = [root / "wormhole" / "a.so"]
    for number in range(compiled_cache.KEPT):
        os.utime(cache / DIGEST, (number, number))  # the oldest, unless it is used
        assert take(cache, DIGEST, tmp_path / "two")
        keep(cache, f"{number:08x}", root, files)
        for folder in cache.iterdir():
            os.utime(folder, (100 + number, 100 + number)) if folder.name == f"{number:08x}" else None
    assert (cache / DIGEST).exists()
    assert len(list(cache.iterdir())) == compiled_cache.KEPT
    assert not (cache / f"{0:08x}").exists()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOME": "/home/me"}, "/home/me/.cache/wormhole/compiled"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/fast"}, "/fast/wormhole/compiled"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "relative"}, "/home/me/.cache/wormhole/compiled"),
    ],
)
def test_it_is_where_the_user_keeps_caches(environment: dict[str, str], expected: str) -> None:
    assert place(environment) == Path(expected)
