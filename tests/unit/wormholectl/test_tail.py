from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import run
from wormhole.model.errors import DecodeError
from wormholectl import log_tail as tail_module
from wormholectl.log_tail import TailEvents, TailOptions


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_tail_that_left_something_out_says_so_once_and_ends_with_a_problem(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tail(url: str, options: TailOptions, events: TailEvents, password_file: Path | None) -> int:
        for place in ("1/1/4", "1/1/99"):
            events.broken(DecodeError("shop.audit has no names", hint="skip_tables", position=place))
        return 0

    monkeypatch.setattr(tail_module, "tail", tail)
    assert run("tail", "rocksdb:///x", *options) == (
        1,
        "",
        "warning: not shown: shop.audit has no names (position 1/1/4). Next: skip_tables\n",
    )
