"""What a user of PostgreSQL may get wrong, or a server may do: each is one error, with the SQL or the setting.

That flows which are not concerned go on is shown over servers, in tests/integration:

- privileges that are missing, no free slot or walsender: ``test_postgres_source.py:
  test_what_a_server_refuses_is_said_with_its_repair_and_who_reads_goes_on``; SELECT:
  ``test_postgres_existing_tables.py: test_tables_that_the_account_may_not_read``
- a table that the publication lacks: ``test_postgres_source.py: test_a_table_that_joins_the_publication_later``
- a publication that was dropped and made again: ``test_postgres_source.py:
  test_what_is_written_without_the_publication_is_a_loss_with_its_range``
- a slot that another program reads: ``test_postgres_source.py: test_who_reads_the_slot_is_a_problem``
- a slot that was invalidated: ``test_postgres_source.py:
  test_posthog_83333_a_stalled_reader_fills_the_disk_up_to_its_bound_only``
- a slot ahead of a datamarker: ``test_postgres_source.py:
  test_airbyte_46571_a_slot_that_another_program_advanced_is_a_loss``
- a standby that was promoted without slots: ``test_postgres_histories.py:
  test_a_promoted_standby_goes_on_with_the_slots_and_without_them_reports_a_loss``
- a key that the log hides: ``test_postgres_source.py: test_a_key_that_the_log_hides_halts_its_table_alone``
- a type that is not known is text: below, and ``test_postgres_types.py: test_every_type`` for enums, composites,
  domains and types of extensions
- a message of a later release: what was committed before it goes out, test_reader.py:
  ``test_what_ended_before_a_fault_goes_out_first``; whoever is behind it travels on, tests/unit/caravan/test_fleet.py:
  ``test_a_log_that_cannot_be_decoded_holds_its_flows``
- wal_level concerns all flows of a log: a server with slots does not start below ``logical``

Further findings are in test_doctor.py; tests/integration/test_postgres_commands.py has a server that refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg import pq

from datastores.postgres import source as source_module
from datastores.postgres.decode.encoder import Encoder
from datastores.postgres.decode.kinds import TEXT, kind_of
from datastores.postgres.decode.tables import Tables
from datastores.postgres.log import slots
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection, ServerError
from datastores.postgres.server.refused_logins import refused_login
from datastores.postgres.server.state import ServerState, read_state
from datastores.postgres.server.stream import Stream
from datastores.postgres.source import PostgresSource
from tests.support import postgres_messages as build
from tests.unit.datastores.postgres.test_source import SLOTS, STATE, Played
from wormhole.model.errors import (
    DecodeError,
    PositionPurged,
    SourceUnavailable,
    UnsupportedLog,
    UsageError,
    WormholeError,
)
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions

ADDRESS = Address("db1", 5432, "app", "shop", publication="s", slot="s", password_from="the password was typed")


class Server:
    """Answers one question, or refuses it."""

    def __init__(self, version: int = 150000, refuses: str = "", standby: bool = False) -> None:
        self.version = version
        self._refuses = refuses
        self._standby = standby

    def query(self, _sql: str, **_options: Any) -> list[tuple[str]]:
        if self._refuses:
            raise ServerError("all replication slots are in use", sqlstate=self._refuses)
        return [("t" if self._standby else "f",)]


def started(state: ServerState, folder: Path) -> PostgresSource:
    """A source beside a server in this state."""
    played = Played()
    played.state = state
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "connect", played.connect)
        patch.setattr(source_module, "read_state", played.read_state)
        patch.setattr(PostgresSource, "_look_at_tables", lambda _: None)
        password = folder / "password"
        password.touch(0o600)
        password.write_text("a hole")
        options = SourceOptions("log", folder, Sharding("log"), 1 << 20, 0, Login(password))
        source = PostgresSource("postgres://w@127.0.0.1/shop?slot=s&publication=s", options)
        source.start()
        return source


def opened_before_the_slots(folder: Path) -> None:
    source = started(STATE, folder)
    try:
        place = LogPosition(1, 0, 50)
        with pytest.MonkeyPatch.context() as patch:
            played = Played()
            patch.setattr(source_module, "connect", played.connect)
            patch.setattr(source_module, "read_state", played.read_state)
            source.open(Datamarker(place, "1:0/32", place))
    finally:
        source.stop()


def with_slots(**changes: Any) -> ServerState:
    return replace(STATE, slots={name: replace(slot, **changes) for name, slot in SLOTS.items()})


def refused(words: str, *, used_password: bool = True, **changes: Any) -> None:
    raise refused_login(replace(ADDRESS, **changes), words, needs_password=False, used_password=used_password)


def future_message() -> None:
    encoder = Encoder(Tables("log", Sharding("log")), 1 << 20)
    encoder.add(build.begin(100, 5)[:25] + b"z" + bytes(8))


def refuses(code: bytes, words: bytes) -> None:
    """The server ends a session with this."""
    fields = {pq.DiagnosticField.SQLSTATE: code, pq.DiagnosticField.MESSAGE_PRIMARY: words}
    raise Connection(cast("Any", None), ADDRESS).refusal(cast("Any", SimpleNamespace(error_field=fields.get)))


def log_ends(code: bytes, words: bytes) -> None:
    """The server ends the sending of its log with this."""
    fields = {pq.DiagnosticField.SQLSTATE: code, pq.DiagnosticField.MESSAGE_PRIMARY: words}
    result = SimpleNamespace(error_field=fields.get, status=pq.ExecStatus.FATAL_ERROR)
    pgconn = SimpleNamespace(get_copy_data=lambda _: (-1, b""), get_result=lambda: result, consume_input=lambda: None)
    Stream(Connection(cast("Any", pgconn), ADDRESS), 100).receive(0.0)


CASES: dict[str, tuple[Callable[[Path], object], type[WormholeError], str, str]] = {
    "wal_level": (
        lambda folder: started(replace(STATE, wal_level="replica"), folder),
        UnsupportedLog,
        "wal_level is replica",
        "ALTER SYSTEM SET wal_level = logical;",
    ),
    "no publication": (
        lambda folder: started(replace(STATE, publication=False), folder),
        SourceUnavailable,
        "no publication s",
        "wormholectl objects create",
    ),
    "no slots, as on a promoted standby": (
        lambda folder: started(replace(STATE, slots={}), folder),
        SourceUnavailable,
        "no replication slot s_held",
        "SELECT pg_create_logical_replication_slot('s_held', 'pgoutput');",
    ),
    "the account may not replicate, up to 15": (
        lambda _: refused("FATAL: must be superuser or replication role to start walsender"),
        SourceUnavailable,
        "replication role",
        'ALTER ROLE "app" REPLICATION;',
    ),
    "the account may not replicate, from 16 on": (
        lambda _: refused("DETAIL: Only roles with the REPLICATION attribute may start a WAL sender process."),
        SourceUnavailable,
        "REPLICATION attribute",
        'ALTER ROLE "app" REPLICATION;',
    ),
    "pg_hba.conf": (
        lambda _: refused('FATAL: no pg_hba.conf entry for host "10.0.0.1", user "app", database "shop"'),
        SourceUnavailable,
        "no pg_hba.conf entry",
        "hostssl shop app ADDRESS/32 scram-sha-256",
    ),
    "a server that takes sessions with TLS only": (
        lambda _: refused('FATAL: no pg_hba.conf entry for host "10.0.0.1", no encryption', sslmode="disable"),
        SourceUnavailable,
        "no encryption",
        "write ?sslmode=require behind the URL",
    ),
    "a server without TLS": (
        lambda _: refused("server does not support SSL, but SSL was required", sslmode="require"),
        SourceUnavailable,
        "does not support SSL",
        "let the server offer TLS (ssl = on), or leave sslmode",
    ),
    "a certificate of another authority": (
        lambda _: refused("SSL error: certificate verify failed", sslrootcert="/ca.pem"),
        SourceUnavailable,
        "certificate verify failed",
        "certificate, and /ca.pem is not: ?sslmode=verify-full&sslrootcert=",
    ),
    "no certificate of an authority": (
        lambda _: refused('root certificate file "/root.crt" does not exist'),
        SourceUnavailable,
        "does not exist",
        "certificate: ?sslmode=verify-full&sslrootcert=",
    ),
    "a certificate of another host": (
        lambda _: refused('server certificate for "db1" does not match host name "127.0.0.1"'),
        SourceUnavailable,
        "does not match host name",
        "as the server's certificate names it",
    ),
    "a connection pooler": (
        lambda _: refused("FATAL: unsupported startup parameter: replication"),
        SourceUnavailable,
        "unsupported startup parameter",
        "name the server behind it",
    ),
    "an account that is not there, where no password is asked for": (
        lambda _: refused('FATAL: role "app" does not exist', used_password=False),
        SourceUnavailable,
        'role "app" does not exist',
        'CREATE ROLE "app" LOGIN REPLICATION;',
    ),
    "a database that is not there, where no password is asked for": (
        lambda _: refused('FATAL: database "shop" does not exist', used_password=False),
        UsageError,
        'database "shop" does not exist',
        "correct the database's name",
    ),
    "no free walsender": (
        lambda _: refused("FATAL: number of requested standby connections exceeds max_wal_senders (currently 10)"),
        SourceUnavailable,
        "max_wal_senders",
        "lower caravans.max",
    ),
    "no free connection": (
        lambda _: refused("FATAL: too many connections for role"),
        SourceUnavailable,
        "too many connections",
        "max_connections",
    ),
    "a wrong password": (
        lambda _: refused('FATAL: password authentication failed for user "app"'),
        UsageError,
        "the password was typed",
        'CREATE ROLE "app" LOGIN REPLICATION PASSWORD \'...\';\nGRANT pg_read_all_data TO "app";',
    ),
    "a database that is not there": (
        lambda _: refused('FATAL: database "shop" does not exist'),
        UsageError,
        'database "shop" does not exist',
        "correct the database's name",
    ),
    "an account that may not use the database": (
        lambda _: refused('FATAL: permission denied for database "shop"'),
        UsageError,
        "the password was typed",
        "correct the account",
    ),
    "no free slot": (
        lambda _: slots.copy(Server(refuses="53400"), SLOTS["s_lead"], "s_1"),  # type: ignore[arg-type]
        SourceUnavailable,
        "each reader of the log needs one",
        "max_replication_slots",
    ),
    "a slot of another plugin": (
        lambda folder: started(with_slots(plugin="wal2json"), folder),
        UsageError,
        "of the plugin wal2json",
        "?slot=NAME",
    ),
    "a slot of another database": (
        lambda folder: started(with_slots(database="crm"), folder),
        UsageError,
        "the database crm",
        "?slot=NAME",
    ),
    "a slot that was invalidated": (
        lambda folder: started(with_slots(wal_status="lost"), folder),
        SourceUnavailable,
        "max_slot_wal_keep_size",
        "SELECT pg_drop_replication_slot('s_held');",
    ),
    "a slot that was idle for too long": (
        lambda folder: started(with_slots(wal_status="lost", invalid="idle_timeout"), folder),
        SourceUnavailable,
        "idle_replication_slot_timeout",
        "SELECT pg_drop_replication_slot('s_held');",
    ),
    "a slot ahead of a marker": (
        opened_before_the_slots,
        PositionPurged,
        "begins at 0/64, beyond the datamarker",
        "accept-loss",
    ),
    "a standby": (
        lambda _: read_state(Server(standby=True), "s", {}),  # type: ignore[arg-type]
        SourceUnavailable,
        "is a standby",
        "name the primary",
    ),
    "a server that is too old": (
        lambda _: read_state(Server(version=120004), "s", {}),  # type: ignore[arg-type]
        UnsupportedLog,
        "version is 12",
        "upgrade it to 13",
    ),
    "a log that was reset under its slots": (
        lambda _: refuses(b"58P01", b"requested WAL segment 000000010000000000000001 has already been removed"),
        SourceUnavailable,
        "has already been removed",
        "`wormholectl objects drop` and `objects create`",
    ),
    "a value that the server cannot convert": (
        lambda _: refuses(b"22P05", b'character with byte sequence 0xad 0xe3 in encoding "EUC_JP" has no equivalent'),
        SourceUnavailable,
        "has no equivalent",
        "correct the row",
    ),
    "a damaged file of the log": (
        lambda _: log_ends(
            b"XX000",
            b"could not find record while sending logically-decoded data: incorrect resource manager data checksum "
            b"in record at 0/1949F28",
        ),
        DecodeError,
        "the server cannot read its own log: app@db1:5432/shop: could not find record",
        "put it back from the server's archive or a standby, then restart the publisher. Without a copy",
    ),
    "a damaged file of the log, up to 14": (
        lambda _: log_ends(b"XX000", b"invalid magic number 0000 in log segment 00000001000000000000000A, offset 8192"),
        DecodeError,
        "in log segment 00000001000000000000000A",
        "`wormholectl objects drop` and `objects create`",
    ),
    "another internal error of the server": (
        lambda _: log_ends(b"XX000", b"cache lookup failed for relation 16400"),
        SourceUnavailable,
        "cache lookup failed",
        "a retry follows",
    ),
    "a message from the future": (lambda _: future_message(), DecodeError, "of kind b'z'", "upgrade the publisher too"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_clear_error_with_what_repairs_it(case: str, tmp_path: Path) -> None:
    make, kind, words, repair = CASES[case]
    with pytest.raises(kind) as error:
        make(tmp_path)
    assert words in error.value.message
    assert "\n" not in error.value.message
    assert repair in (error.value.hint or "")


def test_a_type_that_nobody_knows_is_the_text_that_select_shows() -> None:
    assert kind_of(99_999, None) == kind_of(99_999, ("extension", "strange")) == TEXT
