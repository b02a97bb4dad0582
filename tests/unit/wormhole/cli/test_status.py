from __future__ import annotations

import json

import pytest

from wormhole.cli.admin_client import Answer
from wormhole.cli.status import CARAVANS, FLOWS, SUBSCRIBERS, Listing, show
from wormhole.wire.v1 import admin_pb2, push_pb2


def status(log: str) -> admin_pb2.PublisherStatus:
    place = push_pb2.Position(incarnation=1, file=2, offset=30)
    return admin_pb2.PublisherStatus(
        dataset="shop",
        copy="main",
        log=log,
        version="0.1.0",
        compiled=["wormhole.decode.x"],
        uptime_s=2.5,
        coordination="connected",
        log_end=place,
        flows=[
            admin_pb2.FlowStatus(
                flow="cache/db1",
                state="live",
                subscriber="c1",
                epoch=3,
                place=place,
                marker=push_pb2.Datamarker(order=push_pb2.Position(incarnation=1, file=2, offset=10), delivered="7"),
                credit=3 << 20,
                in_flight=1 << 20,
                updates=1234,
                bytes=99,
                bad_values=4,
                lag_s=75,
                lag_bytes=20,
                lag_transactions=1500,
                headroom_s=7200,
                caravan=1,
                filter="true",
            ),
            admin_pb2.FlowStatus(flow="mail/db1", state="held", cause="the log is purged"),
        ],
        caravans=[
            admin_pb2.CaravanStatus(
                number=1,
                lead=True,
                place=place,
                bytes_per_s=2048,
                flows=["cache/db1"],
                buffered_bytes=5,
                target_bytes_per_s=4096,
                read_bytes=77,
                events=[admin_pb2.CaravanEvent(at_s=1, caravan=1, what="starts at 1/2/0")],
            )
        ],
        limits=admin_pb2.CaravanLimits(caravans=4, read_rate=8 << 20, buffer_bytes=64 << 20, buffered_bytes=5),
        events=[
            admin_pb2.CaravanEvent(at_s=1, caravan=1, what="starts at 1/2/0"),
            admin_pb2.CaravanEvent(at_s=2, caravan=2, what="ends at 1/2/9: merged into caravan 1"),
        ],
        subscribers=[
            admin_pb2.SubscriberStatus(application="cache", subscriber="c1", address="h:1", state="connected", flows=1)
        ],
    )


ONE = [Answer("h:7", status("db1"))]


def test_flows_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(FLOWS, ONE, as_json=False) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "FLOW"
    for text in (
        "cache/db1",
        "live",
        "c1",
        "1/2/30",
        "1/2/10",
        "1m 15s / 20 B / 1,500 tx",
        "2h 0m",
        "1.0 MiB of 4.0 MiB",
        "1,234",
    ):
        assert text in first
    assert "0.0s / - / -" in second
    assert second.endswith("the log is purged")


def test_caravans_and_subscribers_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show(CARAVANS, ONE, as_json=False)
    _, row, limits, *events = capsys.readouterr().out.splitlines()
    assert row == "1 (lead)  1/2/30  2.0 KiB/s  4.0 KiB/s  77 B  5 B     cache/db1"
    assert limits == "at most 4 caravans, each 8.0 MiB/s, together -; change buffers 5 B of 64.0 MiB"
    assert [event.split("  ", 1)[1] for event in events] == [
        "caravan 1: starts at 1/2/0",
        "caravan 2: ends at 1/2/9: merged into caravan 1",
    ]
    show(SUBSCRIBERS, ONE, as_json=False)
    assert "cache/c1    h:1      connected  1" in capsys.readouterr().out


def test_a_long_cause_stands_once_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    cause = "000004.log, offset 899969: fragment header has a wrong checksum, and valid log follows at 900021"
    one = admin_pb2.PublisherStatus(dataset="shop", copy="main", log="db1")
    for shard, why in enumerate([cause, "no subscriber is there", cause, cause + "!"]):
        one.flows.add(flow=f"mail/{shard}", state="held", cause=why)
    show(FLOWS, [Answer("a:1", one)], False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[1:5]] == ["[1]", "there", "[1]", "[2]"]
    assert lines[5:] == [f"[1] {cause}", f"[2] {cause}!"]


def test_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    show(FLOWS, [Answer("h:7", admin_pb2.PublisherStatus(dataset="d", copy="c", log="l"))], as_json=False)
    assert capsys.readouterr().out == "no flows at d/c/l\n"


def test_of_several_publishers_each_is_named_and_the_silent_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [Answer("h:7", status("db1")), Answer("h:8", status("db2")), Answer("h:9", None, "h:9 is silent")]
    assert show(FLOWS, answers, as_json=False) == 3
    out, err = capsys.readouterr()
    assert out.splitlines()[0].endswith("PUBLISHER")
    assert out.splitlines()[-1].endswith("shop/main/db2")
    assert err == "warning: h:9 is silent\n"


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        (
            FLOWS,
            {
                "flow": "cache/db1",
                "state": "live",
                "subscriber": "c1",
                "epoch": 3,
                "place": "1/2/30",
                "marker": "1/2/10",
                "delivered": "7",
                "lag_s": 75.0,
                "lag_bytes": 20,
                "lag_transactions": 1500,
                "headroom_s": 7200.0,
                "credit": 3 << 20,
                "in_flight": 1 << 20,
                "updates": 1234,
                "bytes": 99,
                "bad_values": 4,
                "caravan": 1,
                "filter": "true",
                "cause": "",
            },
        ),
        (
            CARAVANS,
            {
                "caravan": 1,
                "lead": True,
                "place": "1/2/30",
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
    ],
    ids=["flows", "caravans", "subscribers"],
)
def test_for_programs(listing: Listing, expected: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    show(listing, [*ONE, Answer("h:9", None, "silent")], as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    assert told["publishers"] == [
        {
            "publisher": "shop/main/db1",
            "address": "h:7",
            "version": "0.1.0",
            "compiled": ["wormhole.decode.x"],
            "uptime_s": 2.5,
            "coordination": "connected",
            "log_end": "1/2/30",
            "log_bytes_per_s": None,
            "limits": {
                "caravans": 4,
                "read_rate": float(8 << 20),
                "total_read_rate": None,
                "buffer_bytes": 64 << 20,
                "buffered_bytes": 5,
            },
        }
    ]
    assert told["unreachable"] == [{"address": "h:9", "problem": "silent"}]
    assert told[listing.name][0] == {"publisher": "shop/main/db1", "address": "h:7", **expected}
