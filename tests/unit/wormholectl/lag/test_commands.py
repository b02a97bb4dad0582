from __future__ import annotations

import json

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormhole.wire.v1 import admin_pb2


def slow(admin: FakeAdmin) -> None:
    status = admin.status
    report = admin_pb2.HandlerReport(queued_bytes=1 << 20, slowest_table="shop.orders", slowest_s=2.5)
    status.flows[0].handler.CopyFrom(report)


def test_for_people(admin: FakeAdmin) -> None:
    slow(admin)
    first, stage, *figures, slowest, step = run("why-lag", "cache/db1", "-p", "h:7")[1].splitlines()
    assert first == "cache/db1  1m 15s / 20 B / 1,500 tx behind"
    assert stage == "handler: its callbacks take longer than updates arrive"
    assert figures == ["  1.0 MiB wait at the subscriber for a callback"]
    assert slowest == "  slowest callback lately: shop.orders, 2.5s"
    assert step.startswith("  next: make the handler faster")


def test_for_programs(admin: FakeAdmin) -> None:
    slow(admin)
    told = json.loads(run("why-lag", "cache/db1", "-p", "h:7", "--json")[1])
    assert (told["publisher"], told["flow"], told["stage"]) == ("shop/main/db1", "cache/db1", "handler")
    assert (told["slowest_table"], told["slowest_s"], told["lag_s"]) == ("shop.orders", 2.5, 75.0)
    code, out, _ = run("why-lag", "mail/db1", "-p", "h:7", "--json")
    assert (code, json.loads(out)["stage"], json.loads(out)["slowest_s"]) == (0, "control", None)
