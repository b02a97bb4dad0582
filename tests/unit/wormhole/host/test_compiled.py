"""Which hot modules run compiled."""

from __future__ import annotations

import importlib
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import pytest

from wormhole.host.compiled import compiled_modules, hot_modules


def test_a_module_with_c_types_beside_it_is_hot() -> None:
    assert {"wormhole.wire.tally", "publisher.sources.rocksdb.decode.write_batch"} <= set(hot_modules())
    for name in hot_modules():
        assert Path(str(importlib.import_module(name).__file__)).with_name(f"{name.rpartition('.')[2]}.pxd").exists()


@pytest.mark.parametrize("name", hot_modules())
def test_compiled_is_what_was_loaded_from_an_extension(name: str) -> None:
    loader = importlib.import_module(name).__loader__
    assert (name in compiled_modules()) == isinstance(loader, ExtensionFileLoader)
