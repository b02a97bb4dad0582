from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wormholectl.doctor.redact import Redactor

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
        f"aws_secret_access_key = {SECRET}",
        f"AWS_SESSION_TOKEN={SECRET}",
        f'"SecretAccessKey": "{SECRET}"',
        f"AccountName=shop;AccountKey={SECRET};EndpointSuffix=core.windows.net",
        f"https://shop.blob.core.windows.net/c?sv=2024&sig={SECRET}",
        f"client_secret: {SECRET}",
        f'"ticket": "{SECRET}"',
        f"Authorization: Negotiate {SECRET.replace('!', '+')}",
        f"ALTER USER a IDENTIFIED VIA mysql_native_password USING PASSWORD('{SECRET}')",
        f"SET PASSWORD FOR a = PASSWORD( '{SECRET}' )",
        f"CHANGE MASTER TO MASTER_PASSWORD='{SECRET}'",
        f"CREATE USER a IDENTIFIED BY PASSWORD '{SECRET}'",
        f"mysql -h db1 -u root -p{SECRET} shop",
        f"mariadb-dump -p{SECRET} shop",
        f"sshpass -p{SECRET} ssh h",
        f"curl -sS -u root:{SECRET} https://h/",
        f"MYSQL_PWD={SECRET} mysql",
        f"passcode={SECRET}",
        f"Enter pass phrase: {SECRET} more",
        f"secret_key_base: {SECRET}",
        f"cookie_secret = {SECRET}",
        f"session_key={SECRET}",
        f"Cookie: a=1; session={SECRET}; b=more",
        f"sessionid={SECRET}",
        f"GET /x;JSESSIONID={SECRET}",
        f"PHPSESSID: {SECRET}",
        f"/socket?sid={SECRET}&a=b",
        f"connect.sid={SECRET}",
        f'{{"session_id": "{SECRET}"}}',
        f"/x?pass%77ord={SECRET}&a=b",
        f"/x?%70%61%73%73%77%6f%72%64={SECRET}",
        f"next=%2Fx%3Fp%2561ssword%3D{SECRET}",
        f"Set-Cookie: id={SECRET}; Path=/more",
        f'{{"cookie": "id={SECRET}"}}',
        f"/cb?next=%2Fx%3Fpassword%3D{SECRET}%26a%3Db",
        f"next=%2Fx%253Fpassword%253D{SECRET}",
        f"STATEMENT:  ALTER ROLE wormhole PASSWORD '{SECRET}'",
        f"CREATE ROLE a LOGIN ENCRYPTED PASSWORD E'{SECRET}'",
        f"host=db1 scram_client_key={SECRET} sslmode=require",
        f"body=%7B%22password%22%3A%20%22{SECRET}%22%7D",
        f"url=mysql%3A%2F%2Froot%3A{SECRET}%40db1%3A3306",
        PEM.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"),
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


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "ya29.a0AfH6SMBx1234567890abcdef",
        "ghp_1234567890abcdefghijklmnopqrstuvwxyz",
        "xoxb-123456789012-abcdefghijkl",
        "YII" + "Ab1+" * 30 + "==",
        "0123456789abcdef" * 4,
    ],
)
def test_what_providers_issue_goes_without_a_name(secret: str) -> None:
    for text in (secret, f"got {secret}, and so on", f'"{secret}"', f"x={secret}"):
        told = Redactor().text(text)
        assert secret[:20] not in told
        assert secret[-10:].rstrip("=") not in told


def test_known_values_go_wherever_they_stand() -> None:
    redactor = Redactor(["tr0ub4dor\nsecond line\n", "tr0ub4dor&3", "abc"])
    assert redactor.text("x tr0ub4dor%263 y second+line z second%20line") == "x [redacted] y [redacted] z [redacted]"
    assert redactor.text("x tr0ub4dor&3 y tr0ub4dor z second line abc") == "x [redacted] y [redacted] z [redacted] abc"


@pytest.mark.parametrize(
    "text",
    [
        "password_file = /etc/wormhole/db1.password",
        '"token_file": "/var/lib/wormhole/admin.token"',
        "mysql://wormhole@db1:3306/shop",
        "serving shop/main/db1, admin at 127.0.0.1:7401",
        "passes over update 1/2/3:0",
        "auth_file = /etc/wormhole/zookeeper.auth",
        "table primary_key: id",
        "mysql -h db1 --port 3306 shop",
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
