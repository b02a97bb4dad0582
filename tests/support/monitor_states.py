"""States of a host as the monitor keeps them, for what shows them: made from plain numbers, so that they are the
same each time."""

from __future__ import annotations

from monitor.state import HostEvent, HostState, LogKey, Phase, PublisherState
from wormhole.wire.v1 import admin_pb2, push_pb2

MIB = 1 << 20
GIB = 1 << 30
_FILE = 512 * MIB
END = 98 * GIB + 187_342_118


def place(offset: int) -> push_pb2.Position:
    """The place so many bytes from the beginning of a log whose files hold 512 MiB each."""
    return push_pb2.Position(incarnation=1, file=1 + offset // _FILE, offset=offset % _FILE)


def publisher(state: HostState, name: str, now: float, end: int = END, growth: float = 24.0 * MIB) -> PublisherState:
    """Add a running publisher of the log ``name`` (``shop/main/db1``) that ends at byte ``end``."""
    key = LogKey(*name.split("/"))
    added = PublisherState(
        key, Phase.RUNNING, pid=4211, since=now - 262_000, answered=now - 0.4, http="127.0.0.1:40127"
    )
    added.status = admin_pb2.PublisherStatus(
        dataset=key.dataset,
        copy=key.copy,
        log=key.log,
        version="0.1.0",
        compiled=["datastores.mysql.decode.wal"],
        uptime_s=262_000,
        coordination="connected",
        log_end=place(end),
        log_bytes_per_s=growth,
        limits=admin_pb2.CaravanLimits(caravans=6, buffer_bytes=512 * MIB),
    )
    state.publishers[key] = added
    return added


def add_flow(
    publisher: PublisherState, name: str, behind: int = 0, lag_s: float = 0.2, end: int = END, **fields: object
) -> admin_pb2.FlowStatus:
    """Add a live flow that is ``behind`` bytes behind the end of the log; ``fields`` of ``FlowStatus`` override."""
    assert publisher.status is not None
    told: dict[str, object] = {
        "flow": name,
        "state": "live",
        "subscriber": f"{name.partition('/')[0]}-{len(publisher.status.flows) % 3 + 1}",
        "epoch": 3,
        "place": place(end - behind),
        "credit": 3 * MIB,
        "in_flight": MIB,
        "updates": 182_344,
        "lag_s": lag_s,
        "lag_bytes": behind,
        "lag_transactions": behind // 900,
        "headroom_s": 93_000,
        "caravan": 1,
    }
    flow = admin_pb2.FlowStatus(**{**told, **fields})  # type: ignore[arg-type]
    flow.marker.order.CopyFrom(place(end - behind))
    publisher.status.flows.append(flow)
    return flow


def backfill(share: float, **fields: object) -> admin_pb2.BackfillStatus:
    """A backfill of which ``share`` is sent; ``fields`` of ``BackfillStatus`` override."""
    told: dict[str, object] = {
        "generation": 1,
        "state": "running",
        "rows": round(4_000_000 * share),
        "rows_estimate": 4_000_000,
        "share": share,
    }
    return admin_pb2.BackfillStatus(**{**told, **fields})  # type: ignore[arg-type]


def _caravan(
    publisher: PublisherState,
    number: int,
    behind: int,
    rate: float,
    buffered: int,
    end: int = END,
    **fields: object,
) -> None:
    assert publisher.status is not None
    flows = [flow.flow for flow in publisher.status.flows if flow.caravan == number]
    told: dict[str, object] = {"number": number, "lead": number == 1, "cause": "the log's end"}
    publisher.status.caravans.add(
        place=place(end - behind),
        bytes_per_s=rate,
        flows=flows,
        buffered_bytes=buffered,
        read_bytes=9 * GIB,
        **{**told, **fields},
    )
    publisher.status.limits.buffered_bytes += buffered


def quiet(now: float, host: str = "db1.internal") -> HostState:
    """One publisher, two live flows, nothing to do for anybody."""
    state = HostState(host, started=now - 263_000, coordination="connected")
    state.configuration = "ZooKeeper zk1.internal:2181/wormhole, read 3 days ago"
    shop = publisher(state, "shop/main/db1", now)
    add_flow(shop, "search/0", 40_000)
    add_flow(shop, "search/1", 52_000)
    _caravan(shop, 1, 2_000, 24.0 * MIB, 48 * MIB)
    return state


def busy(now: float) -> HostState:
    """Three publishers on a day with work: a caravan that catches up, a halted flow, one without subscriber, a crash
    loop."""
    state = HostState("db1.internal", started=now - 263_000, coordination="connected")
    state.configuration = "ZooKeeper zk1.internal:2181,zk2.internal:2181/wormhole, version 41"
    shop = publisher(state, "shop/main/db1", now)
    for shard in range(4):
        add_flow(shop, f"search/{shard}", 30_000 + 9_000 * shard, 0.1 + shard / 20)
        add_flow(shop, f"cache/{shard}", 90_000 + 21_000 * shard, 0.2 + shard / 30)
    for shard in range(2):
        waits = {"text": "the subscriber has granted no credit"} if shard else None
        add_flow(shop, f"ledger/{shard}", 140_000, 0.3, backfill=backfill(0.31 + 0.07 * shard, waits=waits))
    for shard in range(3):
        behind = 5 * GIB + shard * 190 * MIB
        add_flow(
            shop, f"warehouse/{shard}", behind, 612.0 + 20 * shard, state="catching_up", caravan=3, headroom_s=29_000
        )
    for shard in range(2):
        behind = 130 * MIB + shard * 22 * MIB
        add_flow(
            shop,
            f"mail/{shard}",
            behind,
            6.4,
            state="catching_up",
            caravan=2,
            in_flight=4 * MIB,
            credit=0,
            credit_waited_s=14.0,
        )
    add_flow(
        shop,
        "fraud/2",
        22 * GIB,
        4_410.0,
        state="held",
        caravan=0,
        subscriber="",
        halted_at="1:31:88121904",
        cause="the handler gave up after 8 attempts: KeyError: 'currency'",
        headroom_s=41_000,
        in_flight=0,
        credit=0,
    )
    add_flow(shop, "fraud/3", 300_000, 0.4, dead_letters=3)
    _caravan(shop, 1, 4_000, 24.4 * MIB, 64 * MIB)
    _caravan(shop, 2, 121 * MIB, 31.0 * MIB, 40 * MIB, cause="split off: mail/0 takes less than the lead reads")
    _caravan(shop, 3, 5 * GIB - 50 * MIB, 118.0 * MIB, 64 * MIB, cause="split off: its place is far ahead of caravan 1")
    orders_end = 6 * GIB + 20_918_441
    orders = publisher(state, "orders/main/db1-b", now, orders_end, 2.1 * MIB)
    orders.pid, orders.restarts = 4219, 1
    for shard in range(2):
        add_flow(orders, f"invoices/{shard}", 9_000, 0.1, end=orders_end)
    add_flow(
        orders,
        "reports/0",
        700 * MIB,
        6_340.0,
        end=orders_end,
        state="unassigned",
        caravan=0,
        subscriber="",
        cause="no subscriber is there",
        headroom_s=5_200,
        in_flight=0,
        credit=0,
    )
    _caravan(orders, 1, 1_000, 2.1 * MIB, 31 * MIB, end=orders_end)
    for one in (shop, orders):
        assert one.status is not None
        for subscriber in sorted({flow.subscriber for flow in one.status.flows} - {""}):
            application = subscriber.partition("-")[0]
            one.status.subscribers.add(application=application, subscriber=subscriber, state="connected", flows=1)
    audit = PublisherState(LogKey("audit", "main", "db1-c"), Phase.GIVEN_UP, since=now - 1_260, restarts=5)
    audit.problem = (
        "given up, it ended 5 times within 60 s: process 5120 ended with 1: the binlog is off. Next: start the "
        "server with log_bin"
    )
    state.publishers[audit.key] = audit
    for at, kind, subject, text in (
        (262_000, "adopted", "shop/main/db1", "pid 4211 runs already"),
        (90_000, "config", "", "version 41 by alice@ops1: shop.caravans.total_read_rate 200 MiB/s"),
        (4_410, "halted", "fraud/2", "halted at update 1:31:88121904: KeyError: 'currency'"),
        (1_900, "restart", "orders/main/db1-b", "process 4102 was killed by signal 9; started again in 0.5 s"),
        (
            1_260,
            "crash_loop",
            "audit/main/db1-c",
            "given up, it ended 5 times within 60 s: process 5120 ended with 1: the binlog is off",
        ),
        (
            640,
            "split",
            "shop/main/db1",
            "caravan 3 starts at 1/172/98113024: split off: its place is far behind caravan 1",
        ),
        (75, "merge", "shop/main/db1", "caravan 4 ends at 1/197/183911010: merged into caravan 1"),
        (
            21,
            "split",
            "shop/main/db1",
            "caravan 2 starts at 1/197/40011776: split off: mail/0 takes less than the lead reads",
        ),
    ):
        state.events.append(HostEvent(now - at, kind, subject, text))
    return state


def crowded(now: float, flows: int = 600) -> HostState:
    """One publisher with hundreds of flows."""
    state = quiet(now)
    shop = next(iter(state.publishers.values()))
    for number in range(flows):
        add_flow(shop, f"app{number % 7}/{number}", 1_000 * number, number / 100)
    return state
