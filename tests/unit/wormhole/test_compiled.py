"""Which hot modules run compiled."""

from __future__ import annotations

import importlib
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import pytest

from wormhole.compiled import compiled_modules, hot_modules


def test_a_module_with_c_types_beside_it_is_hot() -> None:
    root = Path(importlib.import_module("wormhole").__path__[0])
    beside = {".".join(("wormhole", *path.relative_to(root).with_suffix("").parts)) for path in root.rglob("*.pxd")}
    assert set(hot_modules()) == beside
    assert "wormhole.decode.rocksdb.write_batch" in beside


@pytest.mark.parametrize("name", hot_modules())
def test_compiled_is_what_was_loaded_from_an_extension(name: str) -> None:
    loader = importlib.import_module(name).__loader__
    assert (name in compiled_modules()) == isinstance(loader, ExtensionFileLoader)
