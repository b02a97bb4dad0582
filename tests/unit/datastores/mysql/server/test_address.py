"""URLs and addresses of servers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.mysql.server.address import Address, parse
from datastores.mysql.server.url import ServerUrl
from wormhole.model.errors import UsageError

# --- address ---


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def my_cnf(tmp_path: Path) -> Path:
    return write(
        tmp_path / "my.cnf",
        """
        # of the administrator
        !includedir /etc/mysql/conf.d
        [mysqld]
        user = mysql
        [client]
        user = reader
        password = "top # secret"   # never shown
        host = db2
        port = 3310
        ssl_ca = /etc/ssl/db.pem
        no-beep
        """.replace('secret"   # never shown', 'secret"'),
    )


def test_a_url_alone() -> None:
    address = parse("mysql://reader@db1", my_cnf=False)
    assert address == Address("db1", 3306, "reader")
    assert (str(address), address.url) == ("reader@db1:3306", "mysql://reader@db1:3306")
    assert address.tls == "prefer"


def test_an_ipv6_address_and_a_socket_are_shown_as_they_are_written() -> None:
    assert str(parse("mysql://u@[::1]:1", my_cnf=False)) == "u@[::1]:1"
    address = parse("mysql://u@localhost/?socket=/run/x.sock", my_cnf=False)
    assert (str(address), address.socket) == ("u@/run/x.sock", "/run/x.sock")


def test_the_option_file_fills_what_the_url_leaves_open(my_cnf: Path) -> None:
    address = parse("mysql://", my_cnf=my_cnf)
    assert (address.user, address.host, address.port, address.password) == ("reader", "db2", 3310, "top # secret")
    assert (address.tls, address.ca) == ("verify-ca", "/etc/ssl/db.pem")
    named = parse("mysql://other@db1:3307?tls=off", my_cnf=my_cnf)
    assert (named.user, named.host, named.port, named.tls, named.ca) == ("other", "db1", 3307, "off", None)
    assert named.password_from == f"the password came from {my_cnf}"


def test_the_option_file_is_the_one_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse("mysql://u@h").password == ""
    write(tmp_path / ".my.cnf", "[client]\npassword=secret\n")
    assert parse("mysql://u@h").password == "secret"
    assert parse("mysql://u@h", my_cnf=False).password == ""


@pytest.mark.parametrize(
    ("line", "password"),
    [
        ("password=a#b", "a"),
        ("password='a#b'", "a#b"),
        (r"password=a\sb\\c\td", "a b\\c\td"),
        (r'password="a\"b"', 'a"b'),
        (r"password=a\qb", r"a\qb"),
        ("password = pässword", "pässword"),
        ("password", ""),
    ],
)
def test_values_are_read_as_mysqls_clients_read_them(line: str, password: str, tmp_path: Path) -> None:
    assert parse("mysql://u@h", my_cnf=write(tmp_path / "f", f"[client]\n{line}\n")).password == password


@pytest.mark.parametrize(
    ("lines", "tls", "ca"),
    [
        ("", "prefer", None),
        ("ssl-mode=REQUIRED", "require", None),
        ("ssl-mode=verify_identity\nssl-ca=/ca", "verify", "/ca"),
        ("ssl-ca=/ca", "verify-ca", "/ca"),
        ("ssl-mode=DISABLED\nssl-ca=/ca", "off", None),
    ],
)
def test_tls_of_the_option_file(lines: str, tls: str, ca: str | None, tmp_path: Path) -> None:
    address = parse("mysql://u@h", my_cnf=write(tmp_path / "f", f"[client]\n{lines}\n"))
    assert (address.tls, address.ca) == (tls, ca)


def test_a_socket_of_the_option_file_is_for_this_host_only(tmp_path: Path) -> None:
    file = write(tmp_path / "f", "[client]\nsocket=/run/x.sock\nuser=u\n")
    assert parse("mysql://", my_cnf=file).socket == "/run/x.sock"
    assert parse("mysql://localhost", my_cnf=file).socket is None
    assert parse("mysql://db1", my_cnf=file).socket is None


@pytest.mark.parametrize(
    ("url", "lines", "complaint"),
    [
        ("mysql://h", "", "names no user"),
        ("mysql://u@h/x", "", "one log for all its databases"),
        ("mysql://u@db1?socket=/x", "", "names a host and a socket"),
        ("mysql://u@h", "port=many", "port 'many'"),
        ("mysql://u@h", "port=0", "port '0'"),
        ("mysql://u@h", "ssl-mode=MAYBE", "ssl-mode=MAYBE"),
    ],
)
def test_what_is_wrong_is_said(url: str, lines: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        parse(url, my_cnf=write(tmp_path / "f", f"[client]\n{lines}\n"))
    assert complaint in str(caught.value)


def test_a_broken_option_file_is_named_and_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        parse("mysql://u@h", my_cnf=write(tmp_path / "f", "password=secret\n[client]\n"))
    assert str(tmp_path / "f") in str(caught.value)
    assert "secret" not in str(caught.value)


def test_where_the_password_is_looked_for(my_cnf: Path, tmp_path: Path) -> None:
    asked: list[str] = []

    def prompt(question: str) -> str:
        asked.append(question)
        return "typed"

    file = write(tmp_path / "password", "of the file\n")
    assert parse("mysql://u@h", password_file=file, my_cnf=my_cnf, prompt=prompt).password == "of the file"
    assert parse("mysql://u:url@h", my_cnf=my_cnf, prompt=prompt).password == "url"
    assert parse("mysql://u:@h", my_cnf=my_cnf, prompt=prompt).password == ""
    assert parse("mysql://u@h", my_cnf=my_cnf, prompt=prompt).password == "top # secret"
    assert asked == []
    assert parse("mysql://u@h", my_cnf=False, prompt=prompt).password == "typed"
    assert asked == ["Password of u on h: "]
    with pytest.raises(UsageError, match="--password-file names another") as caught:
        parse("mysql://u:secret@h", password_file=file)
    assert "secret" not in str(caught.value)


def test_a_password_that_others_can_read_is_remarked_on(tmp_path: Path) -> None:
    closed, group, world = (write(tmp_path / f"{mode:o}", "x\n", mode) for mode in (0o600, 0o640, 0o644))
    assert parse("mysql://u@h", password_file=closed).remarks == ()
    assert parse("mysql://u@h", password_file=group).remarks == ()
    assert "chmod 600" in parse("mysql://u@h", password_file=world).remarks[0]
    option_file = write(tmp_path / "my.cnf", "[client]\npassword=x\n", 0o644)
    assert "chmod 600" in parse("mysql://u@h", my_cnf=option_file).remarks[0]


def test_the_password_is_never_in_what_is_printed(tmp_path: Path) -> None:
    address = parse("mysql://u:secret@h", my_cnf=False)
    assert address.password == "secret"
    assert "secret" not in f"{address} {address!r} {address.url} {address.remarks} {address.password_from}"


# --- url ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mysql://u@h", ServerUrl("mysql", "u", host="h")),
        ("mariadb://u@h:3307/", ServerUrl("mariadb", "u", host="h", port=3307)),
        ("mysql://", ServerUrl("mysql")),
        ("mysql://a%40b:p%3Aw%2F@[::1]:1", ServerUrl("mysql", "a@b", "p:w/", "::1", 1)),
        ("mysql://u:@h", ServerUrl("mysql", "u", "", "h")),
        ("mysql://u@localhost/?socket=/run/x.sock", ServerUrl("mysql", "u", host="localhost", socket="/run/x.sock")),
        ("mysql://u@h?tls=off", ServerUrl("mysql", "u", host="h", tls="off")),
        ("mysql://u@h?ca=/ca.pem", ServerUrl("mysql", "u", host="h", tls="verify", ca="/ca.pem")),
        ("mysql://u@h?ca=/ca.pem&tls=verify-ca", ServerUrl("mysql", "u", host="h", tls="verify-ca", ca="/ca.pem")),
        ("mysql://u@h?cert=/c&key=/k", ServerUrl("mysql", "u", host="h", tls="require", cert="/c", key="/k")),
        (
            "mysql://u@h?server_public_key=/k.pem",
            ServerUrl("mysql", "u", host="h", tls="off", server_public_key="/k.pem"),
        ),
        ("mysql://u@h?unverified_server=may-read-password", ServerUrl("mysql", "u", host="h", exposed=True)),
    ],
)
def test_what_a_url_says(text: str, expected: ServerUrl) -> None:
    assert ServerUrl.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rocksdb:///x", "must be mysql://user@host:3306"),
        ("mariadb:u@h", "must be mariadb://user@host:3306"),
        ("mysql://u@h:port", "the host or the port is none"),
        ("mysql://u@h:65536", "the host or the port is none"),
        ("mysql://u@[::1", "the host or the port is none"),
        ("mysql://u@h/shop", "one log for all its databases"),
        ("mysql://u@h#x", "nothing behind the port"),
        (
            "mysql://u@h?tsl=off",
            "an unknown option; known are socket, tls, ca, cert, key, server_public_key, unverified_server",
        ),
        ("mysql://u@h?tls=off&tls=off", "each option once"),
        ("mysql://u@h?socket=", "with a value"),
        ("mysql://u@h?socket=x.sock", "socket as an absolute path"),
        ("mysql://u@h?cert=/c", "cert and key together"),
        ("mysql://u@h?tls=on", "one of off, prefer, require, verify-ca, verify"),
        ("mysql://u@h?tls=require&ca=/ca", "verifies nothing: write tls=verify"),
        ("mysql://u@h?tls=prefer&cert=/c&key=/k", "write tls=require"),
        ("mysql://u@h?server_public_key=k.pem", "server_public_key as an absolute path"),
        ("mysql://u@h?server_public_key=/k&tls=prefer", "no RSA key is used: write tls=verify"),
        ("mysql://u@h?server_public_key=/k&ca=/c", "no RSA key is used"),
        ("mysql://u@h?server_public_key=/k&cert=/c&key=/p", "no RSA key is used"),
        ("mysql://u@h?unverified_server=yes", "unverified_server=may-read-password only"),
        ("mysql://u@h?unverified_server=may-read-password&ca=/c", "which verifies the server"),
    ],
)
def test_what_is_no_url_of_a_server(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        ServerUrl.parse(text)


def test_the_password_is_not_in_its_repr() -> None:
    assert "secret" not in repr(ServerUrl.parse("mysql://u:secret@h"))


@given(st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=8))
def test_no_password_is_shown_however_it_is_written(password: str) -> None:
    assert password not in complaint_about(f"mysql://u:{password}@h")


@pytest.mark.parametrize("text", ["mysql://u:123?top secret@h", "mysql://u:1/top secret@h", "mysql://u:1#top secret@h"])
def test_a_password_that_looks_like_another_part_is_not_shown_either(text: str) -> None:
    assert "secret" not in complaint_about(text)


def complaint_about(text: str) -> str:
    try:
        ServerUrl.parse(text)
    except ValueError as error:
        return str(error)
    return ""
