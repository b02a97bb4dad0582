"""Sessions on a real server: what a thread of the publisher waits for holds up no other."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from datastores.postgres.server.address import Address, parse
from datastores.postgres.server.connection import ServerError, connect
from tests.support.certificates import Authority
from tests.support.eventually import PATIENCE_S, until
from tests.support.fault_proxy import FaultProxy
from tests.support.postgres_server import NewPostgres, PostgresServer
from wormhole.model.errors import SourceUnavailable, UsageError

_CANCELS = """
import sys, threading
from pathlib import Path
from datastores.postgres.server.address import parse
from datastores.postgres.server.connection import connect
connection = connect(parse(sys.argv[1], "log", password_file=Path(sys.argv[2])))
print("connected", flush=True)
input()
thread = threading.Thread(target=connection.cancel, daemon=True)
thread.start()
print("still runs", flush=True)
thread.join()
print("returned", flush=True)
"""


def _url(server: PostgresServer, port: int) -> str:
    return server.url().replace(f":{server.port}/", f":{port}/")


def _address(server: PostgresServer) -> Address:
    return parse(server.url(), "log", password_file=server.password_file)


def test_a_statement_is_cancelled(postgres_server: PostgresServer) -> None:
    connection, errors = connect(_address(postgres_server)), list[ServerError]()

    def wait() -> None:
        try:
            connection.query("SELECT pg_sleep(600)")
        except ServerError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)' AND state = 'active'"
    until(lambda: postgres_server.sql(asleep) == [(1,)], "the statement runs")
    connection.cancel()
    waiting.join(PATIENCE_S)
    assert [error.sqlstate for error in errors] == ["57014"]  # query_canceled
    assert connection.query("SELECT 1") == [("1",)]
    connection.close()
    connection.cancel()  # does nothing


def test_a_server_that_is_silent_stops_no_thread_while_it_is_asked_to_cancel(postgres_server: PostgresServer) -> None:
    with FaultProxy("127.0.0.1", postgres_server.port) as proxy:
        arguments = [_url(postgres_server, proxy.port), str(postgres_server.password_file)]
        with subprocess.Popen(
            [sys.executable, "-c", _CANCELS, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "connected\n"
                proxy.stall()
                said, _ = process.communicate("go on\n", timeout=PATIENCE_S)
                assert said == "still runs\nreturned\n"
            finally:
                process.kill()


def test_names_are_resolved_where_other_threads_go_on(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int, **_: object) -> list[tuple[object, object, object, str, tuple[str, int]]]:
        asked.append(host)
        if host == "unknown.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(None, None, None, "", (place, port)) for place in ("127.0.0.9", "127.0.0.1", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    known = replace(_address(postgres_server), host="database.example")
    connection = connect(known)  # at the first address nobody listens
    assert (connection.pgconn.host, connection.pgconn.hostaddr) == (b"database.example", b"127.0.0.1")
    connection.close()
    with pytest.raises(SourceUnavailable, match=r"to address: Name or service not known") as refused:
        connect(replace(known, host="unknown.invalid"))
    assert asked == ["database.example", "unknown.invalid"]
    assert "a retry follows" in str(refused.value.hint)


def _logins(server: PostgresServer, method: str) -> None:
    """From now on the server asks each account for its password by ``method``."""
    (server.data / "pg_hba.conf").write_text(
        f"local all postgres trust\nhost all postgres 127.0.0.1/32 trust\nlocal all all {method}\n"
        f"host all all 127.0.0.1/32 {method}\n"
    )
    server.sql("SELECT pg_reload_conf()")


def test_a_proof_takes_no_setting(new_postgres: NewPostgres, tmp_path: Path) -> None:
    """By TCP, TLS and a socket, with passwords that SASLprep changes, and such as it prohibits."""
    files = Authority(tmp_path).issue("db1")
    server = new_postgres()
    for file in (files.cert, files.key):
        shutil.copy(file, server.data)
        (server.data / file.name).chmod(0o600)
    server.own_data()
    server.restart(ssl="on", ssl_cert_file=files.cert.name, ssl_key_file=files.key.name)
    password_file = tmp_path / "password"
    password_file.touch(0o600)
    urls = (
        server.url("postgres"),
        server.url("postgres") + "?sslmode=require",
        server.url("postgres") + "?sslmode=disable",
        f"postgres://{server.user}@:{server.port}/postgres?host={server.folder}",
    )
    _logins(server, "scram-sha-256")
    prepared = ("pässwörd", "soft\u00adhyphen", "\u2168", "a\u00a0b", "\u0627\u0031", "\u0007é", "\u00ad")
    for password, ways in (*((one, urls[:1]) for one in prepared), ("a hole", urls)):
        password_file.write_text(password + "\n", encoding="utf-8")
        server.sql("SET password_encryption = 'scram-sha-256'", f"ALTER ROLE {server.user} PASSWORD '{password}'")
        for url in ways:
            connection = connect(parse(url, "log", password_file=password_file))
            assert connection.query("SELECT current_user") == [(server.user,)]
            connection.close()
    for method, stored in (("password", "scram-sha-256"), ("md5", "md5")):
        _logins(server, method)
        server.sql(f"SET password_encryption = '{stored}'", f"ALTER ROLE {server.user} PASSWORD '{password}'")
        for url in urls:
            address = parse(url, "log", password_file=password_file)
            with pytest.raises(UsageError, match="was not sent"):
                connect(address)
            connect(replace(address, exposed=True)).close()
    assert "terminated" not in server.log.read_text()  # by a client that went away


def test_a_wrong_password_is_the_servers_word(postgres_server: PostgresServer) -> None:
    with pytest.raises(UsageError, match="password authentication failed"):
        connect(replace(_address(postgres_server), password="another"))
