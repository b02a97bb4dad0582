from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wormhole.cli.redact import Redactor

SECRET = "hunter2!xyzzy"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n{SECRET}\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        f"mysql://wormhole:{SECRET}@db1:3306/shop",
        f"mysql://wormhole:{SECRET}@x@db1:3306/shop",
        f"cannot open 'https://u:{SECRET}@h/x'",
        f"password={SECRET}",
        f"db_password = '{SECRET} more'",
        f'"password": "{SECRET} \\" more"',
        f"PASSWD: {SECRET}",
        f"connect(user=a&password={SECRET}&tls=verify)",
        f"authorization: Bearer {SECRET.replace('!', '.')}",
        f"Authorization Basic {SECRET.replace('!', '=')}",
        f"CREATE USER a IDENTIFIED BY '{SECRET}'",
        f"create user a identified with mysql_native_password by '{SECRET} x'",
        f"mysqldump --password {SECRET} shop",
        f"api_key: {SECRET}; next",
        f"aws_secret={SECRET}",
        PEM,
        PEM.replace("\n", "\\n"),
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\nand cut off {SECRET}",
        json.dumps({"event": json.dumps({"password": f"{SECRET} more"})}),
    ],
)
def test_what_looks_like_a_secret_goes(text: str) -> None:
    for around in (text, f"12:00 INFO {text} and so on"):
        told = Redactor().text(around)
        assert "hunter2" not in told
        assert "xyzzy" not in told
        assert "more" not in told
        assert "[redacted]" in told


def test_known_values_go_wherever_they_stand() -> None:
    redactor = Redactor(["tr0ub4dor\nsecond line\n", "tr0ub4dor&3", "abc"])
    assert redactor.text("x tr0ub4dor&3 y tr0ub4dor z second line abc") == "x [redacted] y [redacted] z [redacted] abc"


@pytest.mark.parametrize(
    "text",
    [
        "password_file = /etc/wormhole/db1.password",
        '"token_file": "/var/lib/wormhole/admin.token"',
        "mysql://wormhole@db1:3306/shop",
        "serving shop/main/db1, admin at 127.0.0.1:7401",
        "passes over update 1/2/3:0",
    ],
)
def test_what_helps_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_within_objects() -> None:
    told = Redactor(["s3cr3t value"]).value(
        {"password": "x", "password_file": "/f", "deep": [{"text": "has s3cr3t value"}, 7, None, True], "token": ""}
    )
    assert told == {
        "password": "[redacted]",
        "password_file": "/f",
        "deep": [{"text": "has [redacted]"}, 7, None, True],
        "token": "",
    }


@given(st.text(), st.text(min_size=8).filter(str.strip), st.text())
def test_a_known_secret_is_never_left(before: str, secret: str, after: str) -> None:
    lines = [line.strip() for line in secret.splitlines()]
    told = Redactor([secret]).text(before + secret + after)
    for line in lines:
        if len(line) >= 4 and line not in "[redacted]":
            assert line not in told
