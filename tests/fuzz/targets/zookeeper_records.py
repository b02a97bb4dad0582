"""What stands in ZooKeeper: whoever may write there can write anything, and each node is read or left out with its
path.

What is read is written again and read as the same.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

from publisher.stores.dead_letters.rules import letter_to_json
from publisher.stores.markers.rules import flow_to_json
from tests.fuzz.mutate_text import mutate_json
from tests.fuzz.target import Target
from tests.support.archives import marker_at
from tests.support.letters import letter
from wormhole.audit.window_counts import Mismatch, ProcessedCount, WindowCounts
from wormhole.config import application_from_json, dataset_from_json, to_json
from wormhole.coordination import records
from wormhole.coordination.port import (
    FlowRecord,
    HistoryEntry,
    HostRequest,
    MonitorInfo,
    PublisherInfo,
    SubscriberInfo,
)
from wormhole.model import problem
from wormhole.model.errors import ConfigError, MarkerStoreError
from wormhole.model.position import LogPosition
from wormhole.ports.marker_store import BackfillControl, FlowControl, ReplayControl, StoredFlow
from wormhole.wire.tally import Tally

_FLOW = ("app", "log")
_WHERE = "/wormhole/node"


def _address(rng: random.Random) -> str:
    return rng.choice(("127.0.0.1:7400", "db-7:1", "[::1]:65535"))


def _text(rng: random.Random) -> str:
    return rng.choice(("", "db-7", "127.0.0.1:7400", "é", "a" * 64))


def _seconds(rng: random.Random) -> float:
    return rng.choice((0.0, 1_700_000_000.5, float(rng.randrange(1 << 31))))


def _subscriber(rng: random.Random) -> bytes:
    return records.subscriber_to_json(
        SubscriberInfo("app", "s", _address(rng), rng.choice((1.0, 0.5, 9.0)), _seconds(rng))
    )


def _publisher(rng: random.Random) -> bytes:
    info = PublisherInfo("d", "c", "l", _text(rng), rng.randrange(1 << 22), _address(rng), _seconds(rng), _text(rng))
    return records.publisher_to_json(info)


def _flow(rng: random.Random) -> bytes:
    return records.flow_to_json(FlowRecord(_text(rng), _text(rng), rng.randrange(1 << 62), "open"))


def _monitor(rng: random.Random) -> bytes:
    phases = {f"d/c/{number}": "running" for number in range(rng.randrange(3))}
    return records.monitor_to_json(
        MonitorInfo("h", rng.randrange(1 << 22), f"http://{_address(rng)}/", _seconds(rng), phases)
    )


def _host(rng: random.Random) -> bytes:
    return records.host_to_json(HostRequest(rng.random() < 0.5, _text(rng), _seconds(rng)))


def _history(rng: random.Random) -> bytes:
    return records.history_to_json(HistoryEntry(_seconds(rng), _text(rng), "config apply", _text(rng), "{}", "{}"))


def _again(read: str, write: str, *names: str) -> Callable[[ModuleType, bytes], object]:
    def decode(module: ModuleType, data: bytes) -> object:
        found = getattr(module, read)(*names, data, _WHERE)
        if getattr(module, read)(*names, getattr(module, write)(found), _WHERE) != found:
            raise AssertionError(f"{found} reads as another record")
        return found

    return decode


def _application(rng: random.Random) -> bytes:
    given = {
        "dataset": "shop",
        "start": rng.choice(("latest", "earliest", "1/2/3")),
        "tables": ["shop.users", "shop.*"],
        "where": rng.choice(("", 'op == "delete"', "price > 5 and not changed(email)")),
        "allow": ["billing"],
        "on_failure": rng.choice(("halt", "park")),
        "retry": {"first_wait": "100ms", "longest_wait": "1m"},
    }
    text = json.dumps({name: given[name] for name in given if name in ("dataset", "start") or rng.random() < 0.5})
    return to_json(application_from_json("app", text, "made")).encode()


def _dataset(rng: random.Random) -> bytes:
    log = rng.choice(
        (
            {"source": "rocksdb:///var/lib/db", "pin_budget": "4GiB", "host": "db-7"},
            {"source": "mysql://wormhole@db:3306", "password_file": "/etc/p", "server_ids": "4001-4016"},
            {"source": "mariadb://w@[::1]:3306", "skip_tables": ["a.b"], "history_tables": ["a.*"]},
        )
    )
    given = {"copies": {"main": {"logs": {"log": log}}}, "caravans": {"max": 3, "max_read_rate": "20MiB/s"}}
    if rng.random() < 0.5:
        given["shard_by"] = rng.choice(("log", "table", {"hash": 16}))
    return to_json(dataset_from_json("shop", json.dumps(given), "made")).encode()


def _configured(read: Callable[..., object]) -> Callable[[ModuleType, bytes], object]:
    def decode(module: ModuleType, data: bytes) -> object:
        found = getattr(module, read.__name__)("name", data.decode(errors="replace"), _WHERE)
        text = module.to_json(found)
        if module.to_json(getattr(module, read.__name__)("name", text, _WHERE)) != text:
            raise AssertionError(f"{text} reads as other settings")
        return None

    return decode


def _datamarker(rng: random.Random) -> bytes:
    replay = None
    if rng.random() < 0.6:
        marker = marker_at(rng.randrange(9)) if rng.random() < 0.5 else None
        texts: dict[str, Any] = {
            "id": "r1",
            "who": "ann",
            "mode": "latest",
            "ticket": "t",
            "where": "",
            "subscriber": "s",
        }
        replay = ReplayControl(
            **texts, started_s=1.5, lease_s=60.0, begin=marker, until=marker, progress=rng.randbytes(5)
        )
    skip = tuple(f"s:{n}:0" for n in range(rng.randrange(3)))
    backfill = None
    if rng.random() < 0.6:
        ended = rng.choice(("", "done", "cancelled"))
        tables = tuple(_text(rng) for _ in range(rng.randrange(3)))
        backfill = BackfillControl(
            rng.randrange(1, 1 << 63), "ann", _seconds(rng), tables, ended=ended, rows=rng.randrange(9)
        )
    control = FlowControl(_text(rng), skip, replay, problem.Problem(_text(rng), _text(rng)), backfill)
    stored = StoredFlow(
        marker_at(rng.randrange(9)), rng.randrange(1 << 40), "latest", "ab12", control, rng.random() < 0.5
    )
    return flow_to_json(stored)


def _parked(rng: random.Random) -> bytes:
    told, _ = letter(rng.randrange(1, 99), rng.randrange(9), error=_text(rng), retrying=rng.random() < 0.5)
    return letter_to_json(told).encode()


def _page(rng: random.Random) -> bytes:
    places = [LogPosition(1, rng.randrange(9), rng.randrange(1 << 60)) for _ in range(3)]
    page = WindowCounts(Tally(rng.randrange(1 << 40), rng.randrange(1 << 64)), 5, 1, 77)
    page.mismatches = [Mismatch(places[0], places[1], 3, 2, 1, places[2])] * rng.randrange(3)
    page.lives = {rng.randrange(1 << 64): ProcessedCount(3, 1, 9, 0) for _ in range(rng.randrange(3))}
    return page.to_bytes()


def _read_page(module: ModuleType, data: bytes) -> object:
    page = module.WindowCounts.from_bytes(data)
    if module.WindowCounts.from_bytes(page.to_bytes()) != page:
        raise AssertionError("the page reads as another one")
    return None


_PAGES = ("ranges", "partly", "again", "moved", "silent", "ab12.2800000")


def _counts(rng: random.Random) -> bytes:
    """A name and its page: each of those that delivery counts have."""
    name = rng.choice(_PAGES)
    place = [1, 2, rng.randrange(1 << 40)]
    given = {
        "moved": rng.randrange(1 << 40),
        "silent": [rng.randrange(99), 3, [[5, "ab12", place, place]]],
        "ab12.2800000": json.loads(_page(rng)),
    }.get(name, {"ab12": [[place, place]]})
    return json.dumps({name: given}).encode()


def _read_counts(module: ModuleType, data: bytes) -> object:
    """As a publisher reads them at its start: a page that makes no sense is named as unreadable."""
    try:
        given = json.loads(data)
        stored = {str(name): json.dumps(page).encode() for name, page in given.items()}
    except (ValueError, AttributeError, RecursionError):
        stored = {_PAGES[len(data) % len(_PAGES)]: data}
    counts = module.DeliveryCounts(stored)
    if counts.unreadable:
        raise ConfigError(f"{counts.unreadable}")
    return None


TARGETS = [
    *(
        Target(
            name=f"zookeeper-{kind}",
            module="wormhole.coordination.records",
            decode=_again(f"{kind}_from_json", f"{kind}_to_json", *names),
            make=make,
            allowed=(ConfigError,),
            mutate=mutate_json,
        )
        for kind, make, names in (
            ("subscriber", _subscriber, ("app", "s")),
            ("publisher", _publisher, ("d", "c", "l")),
            ("flow", _flow, ()),
            ("monitor", _monitor, ("h",)),
            ("host", _host, ()),
            ("history", _history, ()),
        )
    ),
    Target(
        name="zookeeper-application",
        module="wormhole.config.load",
        decode=_configured(application_from_json),
        make=_application,
        allowed=(ConfigError,),
        mutate=mutate_json,
    ),
    Target(
        name="zookeeper-dataset",
        module="wormhole.config.load",
        decode=_configured(dataset_from_json),
        make=_dataset,
        allowed=(ConfigError,),
        mutate=mutate_json,
    ),
    Target(
        name="zookeeper-datamarker",
        module="publisher.stores.markers.rules",
        decode=lambda module, data: module.flow_to_json(module.flow_from_json(_FLOW, data, _WHERE)),
        make=_datamarker,
        allowed=(MarkerStoreError,),
        mutate=mutate_json,
    ),
    Target(
        name="zookeeper-parked",
        module="publisher.stores.dead_letters.rules",
        decode=lambda module, data: module.letter_to_json(module.letter_from_json(_FLOW, data, _WHERE)),
        make=_parked,
        allowed=(MarkerStoreError,),
        mutate=mutate_json,
    ),
    Target(
        name="zookeeper-page",
        module="wormhole.audit.window_counts",
        decode=_read_page,
        make=_page,
        allowed=(ValueError,),
        mutate=mutate_json,
    ),
    Target(
        name="zookeeper-delivery-counts",
        module="wormhole.audit.delivery_counts",
        decode=_read_counts,
        make=_counts,
        allowed=(ConfigError,),
        mutate=mutate_json,
    ),
]
