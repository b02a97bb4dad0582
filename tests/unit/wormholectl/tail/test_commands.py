from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from datastores.memory.source import MemorySource
from tests.support.command_line import run
from wormhole.model.errors import DecodeError, SourceUnavailable
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.ports.datastore import Login
from wormholectl.tail import log_tail as tail_module
from wormholectl.tail.log_tail import ShownPlaces, TailEvents, TailOptions


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_tail_that_left_something_out_says_so_once_and_ends_with_a_problem(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tail(
        url: str, options: TailOptions, events: TailEvents, password_file: Path | None, places: ShownPlaces
    ) -> int:
        for place in ("1/1/4", "1/1/99"):
            events.broken(DecodeError("shop.audit has no names", hint="skip_tables", position=place))
        return 0

    monkeypatch.setattr(tail_module, "tail", tail)
    assert run("tail", "rocksdb:///x", *options) == (
        1,
        "",
        "warning: not shown: shop.audit has no names (position 1/1/4) [log-undecodable]. Next: skip_tables\n",
    )


def test_each_table_that_is_left_out_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def tail(
        url: str, options: TailOptions, events: TailEvents, password_file: Path | None, places: ShownPlaces
    ) -> int:
        for tables in (("shop.a", "shop.b"), ("shop.a",), ("shop.a", "shop.c", "shop.b"), tuple(map(str, range(60)))):
            events.broken(DecodeError("shop.a has no names", tables=tables))
        return 0

    monkeypatch.setattr(tail_module, "tail", tail)
    code, _, err = run("tail", "rocksdb:///x")
    assert code == 1
    assert [line.removeprefix("warning: not shown") for line in err.splitlines()[:4]] == [
        ": shop.a has no names [log-undecodable]",
        " either: shop.b",
        " either: shop.c",
        f" either: {', '.join(map(str, range(50)))} and 10 more",
    ]


class Purged(MemorySource):
    """A log whose reader breaks behind the first transaction. By then the log no longer holds the second one."""

    def open(self, marker: Datamarker) -> Any:
        reader = super().open(marker)
        plain = reader.read

        def read(max_bytes: int, wait_s: float) -> Segment | None:
            segment = plain(1, wait_s)
            self.purge(self.latest())
            reader.read = broken  # type: ignore[method-assign]
            return segment

        def broken(max_bytes: int, wait_s: float) -> Segment | None:
            raise SourceUnavailable("the stream broke")

        reader.read = read  # type: ignore[method-assign]
        return reader


def test_a_log_that_is_purged_while_it_is_read_ends_the_tail_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Purged()
    source.start()
    first, _, _ = (source.commit([(Op.UPSERT, "default", key, {"value": b"v"})]) for key in (b"a", b"b", b"c"))

    @contextmanager
    def open_log(url: str, login: Login) -> Iterator[MemorySource]:
        yield source

    monkeypatch.setattr(tail_module, "open_log", open_log)
    status, shown, errors = run("tail", "rocksdb:///x", "--from", "earliest", "--no-follow", "--json")
    assert (status, shown.count("\n")) == (1, 1)
    assert f"next: everything up to {first.order} was shown; --from earliest shows what the log holds now" in errors


@pytest.mark.parametrize(("kind", "status"), [(LossKind.PURGED, 1), (LossKind.NOT_LOGGED, 0)])
def test_log_that_is_missing_on_the_way_is_a_problem_if_the_log_once_held_it(
    kind: LossKind, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tail(
        url: str, options: TailOptions, events: TailEvents, password_file: Path | None, places: ShownPlaces
    ) -> int:
        events.gap(LogGap(kind, "5", "9", "file 3 is gone"), LogPosition(1, 4, 0))
        return 0

    monkeypatch.setattr(tail_module, "tail", tail)
    ended = run("tail", "rocksdb:///x", "--no-follow")
    assert ended[0] == status
    assert ("error [data-lost]: the log no longer holds all of what was asked for: file 3 is gone" in ended[2]) == bool(
        status
    )


def test_the_log_may_be_named_where_its_url_does_not_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def tail(url: str, *_given: object) -> int:
        asked.append(url)
        return 0

    monkeypatch.setattr(tail_module, "tail", tail)
    for name in ("two", "shop/main/two"):
        assert run("tail", "postgres://u@h/shop", "--log", name)[0] == 0
    assert set(asked) == {"postgres://u@h/shop?publication=wormhole_two&slot=wormhole_two"}
