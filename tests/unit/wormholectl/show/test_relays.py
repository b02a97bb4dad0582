"""What a relay holds, as lines and as an object."""

from __future__ import annotations

from tests.support.publisher_status import relay, status
from wormhole.wire.v1 import admin_pb2
from wormholectl.publishers.show import PUBLISHERS
from wormholectl.show.flows import FLOWS
from wormholectl.show.relays import relay_line, relay_lines, relay_object

FULL = admin_pb2.Problem(text="the relay is full", hint="raise relay_budget")


def lines(relay: admin_pb2.RelayStatus) -> list[str]:
    told = status("db1")
    told.relay.CopyFrom(relay)
    return [*relay_lines(told, 1_700_003_600.0)]


def test_a_relay_that_holds() -> None:
    assert lines(relay()) == [
        "relay (hold): 9.0 GiB of log in 3.0 GiB of at most 8.0 GiB",
        "from 1/2/5, 1h 0m ago, to 1/2/30",
        "nothing is recorded from 1/2/10 to 1/2/15",
        (
            "the server keeps at most 1.0 GiB for flows that are behind; when the relay is full, its oldest file goes: "
            "flows that need it lose updates"
        ),
        "a loss of power would take 4.0 KiB of it, what follows 1/2/15: it is read again",
        "only the relay holds what flows need up to 1/2/15",
        "2 readers of it now",
    ]


def test_one_that_was_turned_off_records_nothing() -> None:
    off = relay(mode="off")
    assert any(line.startswith("nothing more is recorded: the files go when") for line in lines(off))
    told = status("db1")
    told.relay.CopyFrom(off)
    shown = relay_object(told)
    assert shown is not None
    assert shown["recording"] is False


def test_one_whose_records_are_all_synced() -> None:
    assert "a loss of power would take nothing of it: synced to 1/2/15" in lines(relay(unsynced_bytes=0))


def test_one_that_does_not_record_says_why_and_what_to_do() -> None:
    assert lines(admin_pb2.RelayStatus(mode="cache", budget_bytes=1 << 30, problem=FULL)) == [
        "relay (cache): nothing is recorded yet; it does not record: the relay is full",
        "next: raise relay_budget",
    ]
    assert lines(admin_pb2.RelayStatus(mode="hold", keeps_slot=True))[1:] == [
        "the server keeps at most 0 B for flows that are behind; when the relay is full, the server keeps more",
    ]


def test_for_programs_what_a_cache_does_not_have_is_null() -> None:
    told = status("db1")
    assert relay_object(told) is None
    told.relay.CopyFrom(relay(mode="cache", problem=FULL))
    found = relay_object(told)
    assert found is not None
    assert (found["slot_budget_bytes"], found["on_full"], found["unsynced_bytes"]) == (None, None, None)
    assert (found["recording"], found["problem"], found["next"]) == (False, FULL.text, FULL.hint)
    told.relay.CopyFrom(relay(keeps_slot=True))
    found = relay_object(told)
    assert found is not None
    assert (found["on_full"], found["stretches"][0]) == ("keep_slot", {"begin": "1/2/5", "end": "1/2/10"})


def test_publishers_and_flows_show_it() -> None:
    told = status("db1")
    assert [*PUBLISHERS.notes(told)] == []
    told.relay.CopyFrom(relay())
    assert [*PUBLISHERS.notes(told)] == [f"shop/main/db1: {relay_line(told.relay)}"]
    told.flows[0].reads_relay = True
    rows = [*FLOWS.rows(told)]
    assert [row[FLOWS.table.titles.index("CARAVAN")] for row in rows] == ["1 (relay)", "-"]
