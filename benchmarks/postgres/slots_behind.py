"""What the server decodes for flows that are far behind, and to keep slots near them: the two ways, on one WAL.

*Copies*: the slots held and lead are moved on by the server, and each reader has a temporary copy of the nearer one.
*Bookmarks*: only the lead is moved on; every so often a persistent copy of it stays behind, the oldest is dropped when
every datamarker has passed it, and a reader copies the nearest one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Final

import psycopg

from benchmarks.cases import cpu_s
from benchmarks.postgres.wal import DATABASE, PUBLICATION, prepare
from datastores.postgres.log import slots
from datastores.postgres.server.address import Address, parse
from datastores.postgres.server.connection import connect
from datastores.postgres.server.lsn import format_lsn, parse_lsn
from datastores.postgres.server.state import read_state
from datastores.postgres.server.stream import LOG_DATA, Stream
from examples.demo.postgres_server import PostgresServer
from wormholectl.show.printer import print_table, print_text

__all__ = ["slots_report"]

FLOWS: Final = 10
_RINGS: Final = (0, 1, 3, 9)
_LAG_S: Final = 20.0
_EVERY_S: Final = 5.0
_RATE: Final = 5000
_STEP_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Opened:
    """A reader with ``bookmarks`` to choose from: what the server decodes before the first row that it wants."""

    flow: int
    bookmarks: int
    decoded_bytes: int
    first_s: float
    server_cpu_s: float


@dataclass(slots=True)
class Moved:
    """What it took to keep slots near: ``decoded_bytes`` and processor time, for ``written_bytes`` of log."""

    written_bytes: int = 0
    decoded_bytes: int = 0
    server_cpu_s: float = 0.0
    calls: int = 0
    longest_s: float = 0.0


def slots_report(*, quick: bool) -> dict[str, Any]:
    """Both tables of ``make bench CASE=postgres_slots``."""
    rows, seconds = (100_000, 15.0) if quick else (1_000_000, 60.0)
    print_text(f"  ten flows along {rows:,} rows ...", flush=True)
    found = opening(rows, _RINGS)
    backlog = found[FLOWS - 1].decoded_bytes * FLOWS / (FLOWS - 1)
    shown: list[Sequence[str]] = []
    for size in _RINGS:
        some = [one for one in found if one.bookmarks == size]
        shown.append(
            (
                str(size) if size else "none: held and lead",
                f"{sum(one.decoded_bytes for one in some) / backlog:.1f}",
                f"{sum(one.server_cpu_s for one in some):.2f}",
                f"{statistics.median(one.first_s for one in some):.2f}  ({max(one.first_s for one in some):.2f})",
            )
        )
    columns: Sequence[str] = ("bookmarks", "decoded, of the backlog", "server s", "first row s: median (longest)")
    print_table(columns, shown, "", f"Ten flows spread over {backlog / 1e6:.0f} MB: before their first rows")
    print_text("  keeping the slots near, beside a writer ...", flush=True)
    moves = {idle: moving(seconds, _LAG_S, idle_transaction=idle) for idle in (False, True)}
    shown = [
        (
            name + (", a transaction stays open" if idle else ""),
            f"{one.written_bytes / 1e6:.0f}",
            f"{one.decoded_bytes / one.written_bytes:.1f}",
            f"{one.server_cpu_s:.2f}",
            f"{one.longest_s * 1000:.0f}",
        )
        for idle, both in moves.items()
        for name, one in both.items()
    ]
    columns = ("way", "MB of log", "decoded, times", "server s", "longest call ms")
    print_table(columns, shown, "", f"Slots moved every {_EVERY_S:g} s for {seconds:g} s, flows {_LAG_S:g} s behind")
    return {
        "opening": [asdict(one) for one in found],
        "moving": [
            {"way": name, "idle": idle, **asdict(one)} for idle, both in moves.items() for name, one in both.items()
        ],
    }


def opening(rows: int, sizes: Sequence[int]) -> list[Opened]:
    """Ten flows, a tenth of ``rows`` apart, with rings of each of these ``sizes``; 0: held and lead alone."""
    with PostgresServer(options={"max_wal_size": "8GB", "full_page_writes": "off"}) as server:
        sql = prepare(server)
        for name in slots.create_statements("wal"):
            sql(name)
        places = []
        for flow in range(FLOWS):
            (place,) = sql("SELECT pg_current_wal_insert_lsn()")[0]
            places.append(parse_lsn(str(place)))
            sql("CHECKPOINT")  # as every 15 s, a place from which decoding may begin
            sql(f"SELECT pg_replication_slot_advance('wal_lead', '{place}')")
            sql(f"SELECT pg_copy_logical_replication_slot('wal_lead', 'mark_{flow}')")
            sql(f"CALL fill({rows // FLOWS // 500}, 500, 40)")
        sql("SELECT pg_replication_slot_advance('wal_lead', pg_current_wal_insert_lsn())")
        address = parse(server.url(DATABASE), "wal", password_file=server.password_file, pgpass=False, prompt=None)
        found = []
        for size in sizes:
            kept = {f"mark_{FLOWS * n // (size + 1)}" for n in range(1, size + 1)}
            for flow, place in enumerate(places):
                found.append(_open(address, flow, size, place, {"wal_held", "wal_lead", *kept}))
        return found


def _open(address: Address, flow: int, size: int, place: int, names: set[str]) -> Opened:
    with closing(connect(address)) as control:
        known = read_state(control, PUBLICATION, {name: name for name in names}).slots.values()
    slot = slots.nearest(known, place)
    assert slot is not None
    walsender = connect(address, walsender=True)
    ((pid,),) = walsender.query("SELECT pg_backend_pid()")
    slots.copy(walsender, slot, "reader")
    before, began = cpu_s(int(pid or 0)), time.monotonic()
    walsender.start_copy(
        f'START_REPLICATION SLOT "reader" LOGICAL {format_lsn(place)} '
        f"(proto_version '1', publication_names '{PUBLICATION}')"
    )
    stream = Stream(walsender, place)
    while not any(message[0] == LOG_DATA for message in stream.receive(1.0)):
        stream.answer()
    first_s = time.monotonic() - began
    used = cpu_s(int(pid or 0)) - before
    stream.close()
    return Opened(flow, size, place - slot.restart, first_s, used)


def moving(seconds: float, lag_s: float, *, idle_transaction: bool) -> dict[str, Moved]:
    """Both ways beside a writer; flows are ``lag_s`` behind. ``idle_transaction``: one stays open meanwhile, as a
    report or a forgotten session does, so that decoding cannot begin behind it.
    """
    with PostgresServer(options={"max_wal_size": "8GB"}) as server:
        sql = prepare(server)
        for name in ("copies", "marks"):
            for statement in slots.create_statements(name):
                sql(statement)
        writer, other = server.connect(DATABASE), server.connect(DATABASE, autocommit=False)
        by = {name: server.connect(DATABASE) for name in ("copies", "marks")}
        moved = {name: Moved() for name in by}
        if idle_transaction:
            other.execute("CREATE TEMPORARY TABLE held_open ()")
        ((begin,),) = sql("SELECT pg_current_wal_insert_lsn() - '0/0'")
        passed: list[tuple[float, int]] = []
        bookmarks: list[tuple[int, str]] = []
        started = time.monotonic()
        due, written = started + _EVERY_S, 0
        while time.monotonic() < started + seconds:
            while written < (time.monotonic() - started) * _RATE:
                writer.execute("CALL fill(10, 50, 40)")
                written += 500
            if time.monotonic() >= due:
                due += _EVERY_S
                ((now,),) = sql("SELECT pg_current_wal_insert_lsn() - '0/0'")
                passed.append((time.monotonic(), int(str(now))))
                behind = max((lsn for at, lsn in passed if at <= time.monotonic() - lag_s), default=int(str(begin)))
                _advance(by["copies"], "copies_lead", passed[-1][1], moved["copies"])
                _advance(by["copies"], "copies_held", behind, moved["copies"])
                _advance(by["marks"], "marks_lead", passed[-1][1], moved["marks"])
                bookmarks.append((passed[-1][1], f"marks_{len(passed)}"))
                _call(
                    by["marks"],
                    f"SELECT pg_copy_logical_replication_slot('marks_lead', '{bookmarks[-1][1]}')",
                    moved["marks"],
                )
                while len(bookmarks) > 1 and bookmarks[1][0] <= behind:
                    _call(by["marks"], f"SELECT pg_drop_replication_slot('{bookmarks.pop(0)[1]}')", moved["marks"])
            time.sleep(_STEP_S)
        ((end,),) = sql("SELECT pg_current_wal_insert_lsn() - '0/0'")
        for name, connection in by.items():
            moved[name].written_bytes = int(str(end)) - int(str(begin))
            moved[name].server_cpu_s = cpu_s(connection.info.backend_pid)
            connection.close()
        writer.close()
        other.close()
        return moved


def _advance(connection: psycopg.Connection[Any], slot: str, to: int, moved: Moved) -> None:
    ((restart, confirmed),) = connection.execute(
        "SELECT restart_lsn - '0/0', confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %s", [slot]
    ).fetchall()
    if to > confirmed:
        _call(connection, f"SELECT pg_replication_slot_advance('{slot}', '{format_lsn(to)}')", moved)
        moved.decoded_bytes += to - int(restart)


def _call(connection: psycopg.Connection[Any], statement: str, moved: Moved) -> None:
    began = time.monotonic()
    connection.execute(statement.encode())
    moved.calls += 1
    moved.longest_s = max(moved.longest_s, time.monotonic() - began)
