"""The configuration on disk is whole, or not there, or told to be of no use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from monitor.last_good_config import LastGoodConfig
from wormhole.config import parse
from wormhole.model.errors import WormholeError

CONFIG = parse(
    """
version = 1
[datasets.shop]
shard_by = "table"
caravans = { max = 2 }
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///data/db1"
host = "h1"
""",
    "test",
)


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "last-good.json"
    assert LastGoodConfig.load(path) is None
    for drained in (True, False):
        kept = LastGoodConfig(CONFIG.datasets, drained, 12.5)
        kept.store(path)
        assert LastGoodConfig.load(path) == kept
    assert list(tmp_path.iterdir()) == [path], "nothing half-made stays"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"datasets": {"shop": {}}, "drained": false, "read_at": 1}', '{"datasets": [], "drained": 1}'],
)
def test_what_makes_no_sense_is_reported_with_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "last-good.json"
    path.write_text(text)
    with pytest.raises(WormholeError, match=r"last-good\.json"):
        LastGoodConfig.load(path)


def test_a_write_that_fails_keeps_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "last-good.json"
    kept = LastGoodConfig(CONFIG.datasets, False, 1.0)
    kept.store(path)
    (tmp_path / ".last-good.json.new").symlink_to("/dev/full")
    with pytest.raises(OSError, match="space"):
        LastGoodConfig({}, True, 2.0).store(path)
    assert LastGoodConfig.load(path) == kept


def test_two_that_write_at_once_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "last-good.json"
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda number: LastGoodConfig(CONFIG.datasets, number % 2 == 0, 10.0**number).store(path), range(200)
            )
        )
    kept = LastGoodConfig.load(path)
    assert kept is not None
    assert kept.datasets == CONFIG.datasets
