"""Which hot modules run compiled."""

from __future__ import annotations

import importlib
import logging
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import pytest

from wormhole.host import compiled
from wormhole.host.compiled import compiled_modules, hot_modules, warn_interpreted


def test_a_module_with_c_types_beside_it_is_hot() -> None:
    assert {"wormhole.wire.tally", "datastores.rocksdb.decode.write_batch"} <= set(hot_modules())
    for name in hot_modules():
        assert Path(str(importlib.import_module(name).__file__)).with_name(f"{name.rpartition('.')[2]}.pxd").exists()


@pytest.mark.parametrize("name", hot_modules())
def test_compiled_is_what_was_loaded_from_an_extension(name: str) -> None:
    loader = importlib.import_module(name).__loader__
    assert (name in compiled_modules()) == isinstance(loader, ExtensionFileLoader)


def warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, package: str, without: int) -> str:
    """What is logged for publishers where the first ``without`` modules of ``package`` are not compiled."""
    names = [name for name in hot_modules() if name.startswith(package)]
    monkeypatch.setattr(compiled, "compiled_modules", lambda: set(hot_modules()) - set(names[:without]))
    warn_interpreted.__wrapped__("datastores")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    return record.getMessage()


def test_without_compiled_modules_it_says_which_how_much_slower_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    message = warning(monkeypatch, caplog, "datastores", 99)
    decoders = [name for name in hot_modules() if name.startswith("datastores")]
    assert message.startswith(", ".join(decoders[:3]))
    assert f" and {len(decoders) - 3} more run interpreted" in message
    assert "5 to 70 times as much processor time" in message
    assert "install the wheel" in message
    assert "C compiler" in message


def test_a_single_module_that_is_not_compiled_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    [first, *_] = [name for name in hot_modules() if name.startswith("wormhole")]
    assert warning(monkeypatch, caplog, "wormhole", 1).startswith(f"{first} run interpreted")


def test_nothing_is_logged_about_modules_of_another_package(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled, "compiled_modules", lambda: set(hot_modules()) - {"spark_replay.archive.kernel"})
    warn_interpreted.__wrapped__("datastores")
    assert caplog.records == []
