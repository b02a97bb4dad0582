from __future__ import annotations

from typing import Any

import pytest

from tests.support.publisher_status import status
from wormhole.admin.admin_service import Answer
from wormholectl.publishers.show import CARAVANS, PUBLISHERS, SHARDS, SUBSCRIBERS
from wormholectl.show.lists import Listing, show

ONE = [Answer("h:7", status("db1"))]


def test_caravans_and_subscribers_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show(CARAVANS, ONE, as_json=False)
    _, row, limits, *events = capsys.readouterr().out.splitlines()
    assert row == "1 (lead)  1/2/30  2.0 KiB/s  4.0 KiB/s  77 B     5 B  cache/db1"
    assert limits == "at most 4 caravans, each 8.0 MiB/s, together -; change buffers 5 B of 64.0 MiB"
    assert [event.split("  ", 1)[1] for event in events] == [
        "caravan 1: starts at 1/2/0",
        "caravan 2: ends at 1/2/9: merged into caravan 1",
    ]
    show(SUBSCRIBERS, ONE, as_json=False)
    assert "cache/c1    h:1      connected      1" in capsys.readouterr().out


def test_publishers_and_shards_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show(PUBLISHERS, ONE, as_json=False)
    assert capsys.readouterr().out.splitlines()[1].split() == [
        *("shop/main/db1", "db-host", "77", "0.1.0", "2.5s", "connected", "1/2/30", "-", "2", "1", "1", "-")
    ]
    waits = status("db1")
    waits.owner = "main@alpha"
    waits.standby.text = "stands by: main@alpha owns the log"
    show(PUBLISHERS, [Answer("h:7", waits)], as_json=False)
    assert capsys.readouterr().out.splitlines()[1].endswith("-     stands by: main@alpha owns the log [stands-by]")
    show(SHARDS, ONE, as_json=False)
    assert capsys.readouterr().out.splitlines()[1] == (
        "db1    shop/main/db1      2  1m 15s / 20 B / 1,500 tx  cache, mail; last is cache/db1"
    )


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        (
            CARAVANS,
            {
                "caravan": 1,
                "lead": True,
                "place": "1/2/30",
                "native_place": None,
                "bytes_per_s": 2048.0,
                "target_bytes_per_s": 4096.0,
                "read_bytes": 77,
                "buffered_bytes": 5,
                "flows": ["cache/db1"],
                "cause": "",
                "events": [{"at": "1970-01-01T00:00:01Z", "what": "starts at 1/2/0"}],
            },
        ),
        (
            SUBSCRIBERS,
            {
                "application": "cache",
                "subscriber": "c1",
                "address": "h:1",
                "state": "connected",
                "flows": 1,
                "cause": "",
            },
        ),
        (SHARDS, {"shard": "db1", "flows": ["cache/db1", "mail/db1"], "lag_s": 75.0, "lag_bytes": 20}),
    ],
    ids=lambda value: value.name if isinstance(value, Listing) else "",
)
def test_for_programs(listing: Listing[Any], expected: dict[str, object]) -> None:
    assert list(listing.objects(status("db1"))) == [expected]
