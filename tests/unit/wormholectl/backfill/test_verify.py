from __future__ import annotations

from functools import partial

import pytest

from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormhole.host.clock import Clock
from wormhole.model.errors import Fatal
from wormhole.wire.v1 import admin_pb2, push_pb2
from wormholectl.backfill import changes
from wormholectl.backfill.flows import wait_until_ended

AT = ("-p", "h:7")


def verified(**fields: object) -> admin_pb2.TableVerification:
    told: dict[str, object] = {"table": "shop.users", "compared": 1_000_000, "ended": True}
    return admin_pb2.TableVerification(**{**told, **fields})  # type: ignore[arg-type]


def ended(*tables: admin_pb2.TableVerification, repair: bool = False, **fields: object) -> admin_pb2.BackfillStatus:
    """A verification of cache/db1."""
    told: dict[str, object] = {
        "generation": 4,
        "state": "done",
        "who": "ann@ops",
        "rows": 1_000_000,
        "verify": push_pb2.VERIFY_REPAIR if repair else push_pb2.VERIFY_COMPARE,
    }
    return admin_pb2.BackfillStatus(**{**told, "verified": tables, **fields})  # type: ignore[arg-type]


def differing(**fields: object) -> admin_pb2.TableVerification:
    found = verified(differs=1, missing=1, extra=1, **fields)
    found.differences.add(kind="differs", key="(7,)", columns=["name", "city"])
    found.differences.add(kind="missing", key="(8,)")
    found.differences.add(kind="extra", key="(1000001,)")
    return found


@pytest.fixture
def flow(admin: FakeAdmin) -> admin_pb2.FlowStatus:
    """cache/db1."""
    status = admin.status
    status.flows[0].verifies = True
    return status.flows[0]


def lines(out: str) -> list[str]:
    return [" ".join(line.split()) for line in out.splitlines()]


class TestVerify:
    def test_nothing_begins_before_the_answer(self, admin: FakeAdmin) -> None:
        code, out, err = run("verify", "cache", *AT)
        assert (code, "--yes" in err) == (2, True)
        assert [one.preview for one in admin.requests] == [True]
        assert "1 flow of cache would compare about 1,200,000 rows, by the server's estimate, of 1 table" in out

    @pytest.mark.parametrize("which", ["cache", "cache/db1"])
    @pytest.mark.parametrize(
        ("options", "mode"), [((), push_pb2.VERIFY_COMPARE), (("--repair",), push_pb2.VERIFY_REPAIR)]
    )
    def test_what_was_asked_is_handed_on(
        self, which: str, options: tuple[str, ...], mode: push_pb2.Verify, admin: FakeAdmin
    ) -> None:
        more = ("--tables", "shop.us*", "--rate", "1MiB/s", "--yes", "--background")
        code, out, err = run("verify", which, *options, *more, *AT)
        assert (code, err) == (0, "")
        (last,) = [one for one in admin.requests if not one.preview]
        asked = last.backfill_start
        assert (last.flow, list(asked.tables), asked.rate, asked.verify) == ("cache/db1", ["shop.users"], 1 << 20, mode)
        assert "`wormholectl backfill show cache` has the result" in out

    def test_the_rows_with_which_the_application_begins_come_first(
        self, admin: FakeAdmin, flow: admin_pb2.FlowStatus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flow.backfill.CopyFrom(admin_pb2.BackfillStatus(generation=1, state="running", who="start"))

        def pause(_: float) -> None:
            assert not admin.requests, "the publisher refuses it meanwhile"
            flow.backfill.CopyFrom(ended(verified()))

        waits = partial(wait_until_ended, clock=Clock(pause=pause))
        monkeypatch.setattr(changes, "wait_until_ended", waits)
        assert run("verify", "cache", "--yes", *AT)[0] == 0
        assert flow.backfill.generation == 4

    def test_equal(self, admin: FakeAdmin, flow: admin_pb2.FlowStatus) -> None:
        flow.backfill.CopyFrom(ended(verified(), verified(table="shop.items", compared=2)))
        code, out, err = run("verify", "cache", "--yes", *AT)
        assert code == 0, err
        assert lines(out)[-3:] == [
            "shop.items 2 0 0 0 0 0 0",
            "shop.users 1,000,000 0 0 0 0 0 0",
            "cache equals its tables: 1,000,002 rows compared",
        ]

    def test_differing_rows_are_named_with_their_columns(self, admin: FakeAdmin, flow: admin_pb2.FlowStatus) -> None:
        flow.backfill.CopyFrom(ended(differing()))
        code, out, _ = run("verify", "cache", "--yes", *AT)
        found = lines(out)
        assert code == 1
        assert "TABLE COMPARED DIFFERS MISSING EXTRA NOT COMPARED REPAIRED REMOVED" in found
        assert "shop.users 1,000,000 1 1 1 0 0 0" in found
        assert "cache/db1 shop.users differs (7,) name, city" in found
        assert "cache/db1 shop.users missing (8,)" in found
        assert "cache/db1 shop.users extra (1000001,)" in found
        assert found[-2:] == [
            "cache does not equal its tables: 3 differences left",
            "next: wormholectl verify cache --repair",
        ]
        assert run("backfill", "show", "cache", *AT)[1].endswith(out[out.index("\nTABLE    ") :])

    def test_repaired(self, admin: FakeAdmin, flow: admin_pb2.FlowStatus) -> None:
        flow.backfill.CopyFrom(ended(differing(repaired=2, removed=1), repair=True))
        code, out, _ = run("verify", "cache", "--repair", "--yes", *AT)
        assert code == 0
        assert lines(out)[-1] == "cache equals its tables now: 1,000,000 rows compared, 3 differences repaired"

    @pytest.mark.parametrize(
        ("status", "says"),
        [
            (ended(differing(repaired=2), repair=True), "1 difference left"),
            (ended(verified(not_compared=2)), "2 rows could not be compared"),
            (ended(verified(trouble=admin_pb2.Problem(text="no key", hint="add one"))), "shop.users: no key"),
            (ended(verified(), state="cancelled"), "cancelled before everything was compared"),
            (ended(), "no result is known"),  # without a share: of a publisher that was started again
            (
                ended(verified(), progress=[admin_pb2.BackfillTable(table="shop.log", state="refused")]),
                "not compared, as its rows cannot be read: shop.log",
            ),
            (ended(verified(ended=False)), "not ended"),
        ],
    )
    def test_what_is_not_known_to_be_equal_is_not_called_so(
        self, status: admin_pb2.BackfillStatus, says: str, admin: FakeAdmin, flow: admin_pb2.FlowStatus
    ) -> None:
        flow.backfill.CopyFrom(status)
        code, out, _ = run("verify", "cache", "--yes", *AT)
        assert (code, says in out, "equals its tables" in out) == (1, True, False)

    def test_a_flow_of_tables_that_cannot_be_read_has_one_reason(
        self, admin: FakeAdmin, flow: admin_pb2.FlowStatus
    ) -> None:
        flow.backfill.CopyFrom(ended(progress=[admin_pb2.BackfillTable(table="shop.log", state="refused")]))
        code, out, _ = run("verify", "cache", "--yes", *AT)
        assert (code, "cannot be read: shop.log" in out, "no result is known" in out) == (1, True, False)

    def test_a_flow_of_a_database_without_a_table_is_passed_over(
        self, admin: FakeAdmin, flow: admin_pb2.FlowStatus
    ) -> None:
        other = admin.status.flows[1]
        other.flow = "cache/db2"
        flow.backfill.CopyFrom(ended(verified()))
        other.backfill.CopyFrom(ended(share=1.0, rows=0))
        code, out, _ = run("verify", "cache", "--yes", *AT)
        assert (code, lines(out)[-1]) == (0, "cache equals its tables: 1,000,000 rows compared")
        last = run("verify", "cache", "--json", "--yes", *AT)[1].splitlines()[-1]
        found = check("backfill-show", last)["flows"]
        assert [one["backfill"]["equal"] for one in found] == [True, None]
        flow.backfill.CopyFrom(ended(verified(missing=1)))
        code, out, _ = run("verify", "cache", "--yes", *AT)
        assert (code, lines(out)[-1]) == (1, "next: wormholectl verify cache --repair")

    def test_flows_without_any_table_have_one_result(self, admin: FakeAdmin, flow: admin_pb2.FlowStatus) -> None:
        told = admin.status
        told.flows[1].flow = "cache/db2"
        for one in told.flows:
            one.backfill.CopyFrom(ended(share=1.0, rows=0))
        code, out, _ = run("verify", "cache", "--yes", *AT)
        assert (code, lines(out)[-1]) == (1, "nothing was compared: no table that cache wants exists")

    def test_shards_are_added_up(self, admin: FakeAdmin, flow: admin_pb2.FlowStatus) -> None:
        told = admin.status
        told.flows[1].flow = "cache/db2"
        for one in told.flows:
            one.backfill.CopyFrom(ended(differing()))
        found = lines(run("verify", "cache", "--yes", *AT)[1])
        assert "shop.users 2,000,000 2 2 2 0 0 0" in found
        assert "cache/db2 shop.users missing (8,)" in found

    def test_a_long_list_is_cut_and_says_so(self, admin: FakeAdmin, flow: admin_pb2.FlowStatus) -> None:
        found = verified(missing=5_000)
        for number in range(1_000):
            found.differences.add(kind="missing", key=f"({number},)")
        flow.backfill.CopyFrom(ended(found))
        out = run("verify", "cache", "--yes", *AT)[1]
        assert "4,900 more: --json has the first 1,000 of each table and flow" in out
        assert "(100,)" not in out

    def test_ctrl_c_leaves_it_running(
        self, admin: FakeAdmin, flow: admin_pb2.FlowStatus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        flow.backfill.CopyFrom(ended(verified(), state="running"))
        monkeypatch.setattr("wormholectl.backfill.flows.wait_until_ended", interrupted)
        monkeypatch.setattr("wormholectl.show.backfills.ProgressLine.show", interrupted)
        code, _, err = run("verify", "cache", "--yes", *AT)
        assert code == 130
        assert "it goes on: `wormholectl backfill show cache --watch` looks again" in err
        assert "`wormholectl backfill cancel cache` ends it" in err
        assert [one.WhichOneof("what") for one in admin.requests if not one.preview] == ["backfill_start"]

    def test_for_programs(self, admin: FakeAdmin, flow: admin_pb2.FlowStatus) -> None:
        flow.backfill.CopyFrom(ended(differing()))
        begun, progress, last = run("verify", "cache", "--json", "--yes", *AT)[1].splitlines()
        check("backfill-change", begun)
        check("backfill-progress", progress)
        found = check("backfill-show", last)["flows"][0]["backfill"]
        assert (found["verify"], found["equal"]) == ("compare", False)
        assert found["verified"][0]["differences"][0] == {"kind": "differs", "key": "(7,)", "columns": ["name", "city"]}


class TestRepair:
    @pytest.fixture(autouse=True)
    def kept(self, admin: FakeAdmin) -> None:
        admin.keeps = True

    def asked(self, admin: FakeAdmin) -> list[str]:
        return [one.WhichOneof("what") or "" for one in admin.requests if not one.preview]

    def held(self, flow: admin_pb2.FlowStatus) -> None:
        flow.loss_pending, flow.state = True, "held"

    def test_the_rows_are_asked_for_before_the_loss_is_accepted(
        self, admin: FakeAdmin, flow: admin_pb2.FlowStatus
    ) -> None:
        self.held(flow)
        code, out, err = run("repair", "cache/db1", "--yes", "--background", *AT)
        assert (code, err) == (0, "")
        assert self.asked(admin) == ["backfill_start", "accept_loss"]
        assert admin.requests[-2].backfill_start.verify == push_pb2.VERIFY_REPAIR
        assert "what differs is delivered" in out
        assert out.startswith("cache/db1: never delivered: log 5 to 9 is purged\n")
        assert not flow.loss_pending

    def test_nothing_is_changed_before_the_answer(self, admin: FakeAdmin, flow: admin_pb2.FlowStatus) -> None:
        self.held(flow)
        code, out, _ = run("repair", "cache/db1", *AT)
        assert (code, self.asked(admin)) == (2, [])
        assert "this would happen:\n  1. the rows that cache holds are compared" in out
        assert "  2. the flow goes on without the missing log\n" in out

    def test_an_application_that_does_not_compare_gets_all_rows(
        self, admin: FakeAdmin, flow: admin_pb2.FlowStatus
    ) -> None:
        flow.verifies = False
        self.held(flow)
        out = run("repair", "cache/db1", "--yes", "--background", *AT)[1]
        assert self.asked(admin) == ["backfill_start", "accept_loss"]
        assert admin.requests[-2].backfill_start.verify == push_pb2.VERIFY_NONE
        assert "all rows of its tables are delivered" in out
        assert "on_verify" in out

    def test_what_was_accepted_earlier(self, admin: FakeAdmin, flow: admin_pb2.FlowStatus) -> None:
        out = run("repair", "cache/db1", "--yes", "--background", *AT)[1]
        assert self.asked(admin) == ["backfill_start"]
        assert "cache/db1 is not held at missing log" in out

    def test_a_command_that_died_between_the_two_is_continued(
        self, admin: FakeAdmin, flow: admin_pb2.FlowStatus
    ) -> None:
        self.held(flow)
        flow.backfill.CopyFrom(ended(state="waiting", repair=True))
        out = run("repair", "cache/db1", "--yes", "--background", *AT)[1]
        assert self.asked(admin) == ["accept_loss"]
        assert "its rows were asked for before, in generation 4" in out

    @pytest.mark.parametrize(
        "status",
        [
            ended(state="waiting"),
            ended(state="waiting", repair=True, tables=["shop.users"]),
            ended(state="waiting", repair=True, where="key > 1"),
            ended(state="paused", repair=True, paused="ann@ops"),
            ended(repair=True),
        ],
        ids=["compares only", "a table", "a filter", "paused", "ended"],
    )
    def test_what_runs_but_is_no_repair_does_not_count(
        self, status: admin_pb2.BackfillStatus, admin: FakeAdmin, flow: admin_pb2.FlowStatus
    ) -> None:
        self.held(flow)
        flow.backfill.CopyFrom(status)
        run("repair", "cache/db1", "--yes", "--background", *AT)
        assert self.asked(admin) == ["backfill_start", "accept_loss"]

    def test_a_refused_start_leaves_the_loss_as_it_is(self, admin: FakeAdmin, flow: admin_pb2.FlowStatus) -> None:
        self.held(flow)
        admin.refusal = Fatal("a backfill of it runs", hint="wormholectl backfill cancel cache")
        code, out, err = run("repair", "cache/db1", "--yes", *AT)
        assert (code, out, "a backfill of it runs" in err) == (1, "", True)
        assert flow.loss_pending

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"subscriber": ""}, "start a subscriber of cache"),
            ({"subscriber": "", "loss_pending": True}, "wormholectl flows accept-loss cache/db1"),
            ({"replay": admin_pb2.ReplayStatus(replay="r1", state="needs_replay")}, "wormholectl replay --resume r1"),
            ({"replay": admin_pb2.ReplayStatus(replay="r1", state="running")}, "wait until it is through"),
        ],
    )
    def test_what_has_to_be_done_first(
        self, fields: dict[str, object], says: str, admin: FakeAdmin, flow: admin_pb2.FlowStatus
    ) -> None:
        flow.MergeFrom(admin_pb2.FlowStatus(**fields))  # type: ignore[arg-type]
        flow.subscriber = "" if "subscriber" in fields else flow.subscriber
        code, out, err = run("repair", "cache/db1", "--yes", *AT)
        assert (code, out, self.asked(admin)) == (1, "", [])
        assert says in err

    def test_for_programs(self, admin: FakeAdmin, flow: admin_pb2.FlowStatus) -> None:
        self.held(flow)
        planned = check("repair", run("repair", "cache/db1", "--json", *AT)[1])
        assert (planned["changed"], planned["held"], planned["backfill"]["verify"]) == (False, True, "repair")
        done = check("repair", run("repair", "cache/db1", "--json", "--yes", "--background", *AT)[1])
        assert (done["changed"], done["lost"]) == (True, "never delivered: log 5 to 9 is purged")
