from __future__ import annotations

import json

import pytest

from tests.support.cli_schema import check
from tests.support.publisher_status import status
from wormhole.admin.admin_service import Answer
from wormhole.admin.discovery import Drained
from wormhole.wire.v1 import admin_pb2
from wormholectl.publishers.show import PUBLISHERS
from wormholectl.show.flows import FLOWS
from wormholectl.show.lists import show


def test_a_long_cause_is_printed_once_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    cause = "000004.log, offset 899969: fragment header has a wrong checksum, and valid log follows at 900021"
    one = admin_pb2.PublisherStatus(dataset="shop", copy="main", log="db1")
    for shard, why in enumerate([cause, "no subscriber is there", cause, cause + "!"]):
        one.flows.add(flow=f"mail/{shard}", state="held", cause=why)
    show(FLOWS, [Answer("a:1", one)], False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[1:5]] == ["[1]", "[flow-held]", "[1]", "[2]"]
    assert lines[5:] == [f"[1] {cause} [flow-held]", f"[2] {cause}! [flow-held]"]


def test_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    show(FLOWS, [Answer("h:7", admin_pb2.PublisherStatus(dataset="d", copy="c", log="l"))], as_json=False)
    assert capsys.readouterr().out == "no flows at d/c/l\n"


def test_of_several_publishers_each_is_named_and_the_silent_one_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [Answer("h:7", status("db1")), Answer("h:8", status("db2")), Answer("h:9", None, "h:9 is silent")]
    assert show(FLOWS, answers, as_json=False) == 3
    out, err = capsys.readouterr()
    assert out.splitlines()[0].endswith("PUBLISHER")
    assert out.splitlines()[-1].endswith("shop/main/db2")
    assert err == "warning: h:9 is silent\n"


def test_what_is_wrong_with_a_log_is_printed_whatever_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for listing in (FLOWS, PUBLISHERS):
        told = status("db1")
        told.problems.append("the server is away")
        assert show(listing, [Answer("h:7", told)], as_json=False) == 0
        assert capsys.readouterr().err == "warning: shop/main/db1: the server is away\n"


def test_for_programs_the_publisher_is_named_beside_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    show(FLOWS, [Answer("h:7", status("db1")), Answer("h:9", None, "silent")], as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    assert told["publishers"] == [
        {
            "publisher": "shop/main/db1",
            "address": "h:7",
            "http_address": None,
            "host": "db-host",
            "pid": 77,
            "version": "0.1.0",
            "compiled": ["datastores.mysql.decode.x"],
            "uptime_s": 2.5,
            "coordination": "connected",
            "log_end": "1/2/30",
            "native_log_end": None,
            "log_bytes_per_s": None,
            "condition": {"state": "ok", "code": None, "cause": None, "next_step": None},
            "stuck_s": None,
            "term": None,
            "candidate": None,
            "standby": None,
            "problems": [],
            "end_unknown": None,
            "relay": None,
            "flows": 2,
            "caravans": 1,
            "subscribers": 1,
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
    assert [(flow["publisher"], flow["address"], flow["flow"]) for flow in told["flows"]] == [
        ("shop/main/db1", "h:7", "cache/db1"),
        ("shop/main/db1", "h:7", "mail/db1"),
    ]


def test_a_drained_host_is_reported_and_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    drained = Drained("db-7", "ann@ops", ("shop/main/db2",), frozenset({"cache"}))
    answers = [Answer("h:7", status("db1")), Answer("", None, str(drained), drained=drained)]
    for listing in (FLOWS, PUBLISHERS):
        assert show(listing, answers, as_json=False) == 0
        out, err = capsys.readouterr()
        sentence = "host db-7 is drained by ann@ops: shop/main/db2 is not served, and the flows there are not known"
        assert (out.splitlines()[-1], err) == (sentence, "")
    assert show(FLOWS, answers, as_json=True) == 0
    found = check("flows", capsys.readouterr().out)
    assert found["drained"] == [{"host": "db-7", "by": "ann@ops", "publishers": ["shop/main/db2"]}]
    assert found["unreachable"] == []


def test_publishers_are_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    show(PUBLISHERS, [Answer("h:7", status("db1"))], as_json=True)
    assert list(json.loads(capsys.readouterr().out)) == ["schema", "publishers", "drained", "unreachable"]
