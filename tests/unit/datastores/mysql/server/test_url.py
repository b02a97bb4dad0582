from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.mysql.server.url import ServerUrl


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
