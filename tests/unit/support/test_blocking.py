"""A blocking call of ours on a loop fails the test, also behind a test that may block."""

from __future__ import annotations

from pathlib import Path

import pytest
from blockbuster import BlockingError

from wormhole.host.state_file import write_state


@pytest.mark.allow_blocking(reason="shows that the mark works")
async def test_one_that_may_block(tmp_path: Path) -> None:
    write_state(tmp_path / "state.json", {})


async def test_one_that_may_not_block_comes_behind_it(tmp_path: Path) -> None:
    with pytest.raises(BlockingError):
        write_state(tmp_path / "state.json", {})
