"""What a dump for support holds, and what is redacted in it."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormholectl.doctor.redact import Redactor

# --- redact ---


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


# --- support dump ---


TOKEN = "ab12" * 16
PASSWORD = "correct horse battery staple"
PLANTED = (
    "hunter2",
    "xyzzy",
    TOKEN,
    PASSWORD,
    "horse",
    "s3cr3t-key-line",
    "qwerty-in-cause",
    "mask-key",
    "source-word",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An installation with a secret wherever one may stand, and logs that tell them all."""
    (tmp_path / "db.password").write_text(PASSWORD + "\n")
    (tmp_path / "mask.key").write_text("mask-key-of-ours\n")
    (tmp_path / "source.password").write_text("source-word\n")
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\ns3cr3t-key-line\n-----END PRIVATE KEY-----\n")
    (tmp_path / "cert.pem").write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    logs = tmp_path / "state" / "monitor" / "logs"
    logs.mkdir(parents=True)
    (tmp_path / "state" / "admin.token").write_text(TOKEN)
    lines = [
        f"INFO logging in with {PASSWORD} at mysql://wormhole:{SECRET}@db1:3306",
        f"WARNING refused: authorization: Bearer {TOKEN}",
        f"ERROR CREATE USER x IDENTIFIED BY '{SECRET}'",
        "DEBUG a line of a key: s3cr3t-key-line",
        "DEBUG masked by mask-key-of-ours, read with source-word",
        PEM,
        "INFO serving shop/main/db1",
    ]
    (logs / "shop.main.db1.log").write_text("\n".join(lines) + "\n")
    path = tmp_path / "shop.toml"
    path.write_text(
        "version = 1\n[coordinator]\nstatic = true\n[publisher]\nstate_dir = 'state'\nmask_key_file = 'mask.key'\n"
        "[sources.other]\nsource = 'mysql://wormhole@db2:3306'\npassword_file = 'source.password'\n"
        "[tls]\ncert = 'cert.pem'\nkey = 'key.pem'\nca = 'cert.pem'\n"
        "[datasets.shop.copies.main.logs.db1]\nsource = 'mysql://wormhole@db1:3306'\npassword_file = 'db.password'\n"
    )
    return path


@pytest.fixture
def planted(admin: FakeAdmin, file: Path) -> FakeAdmin:
    told = admin.status
    told.flows[1].cause = "mysql://root:qwerty-in-cause@db1 refused"
    return admin


def contents(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        found = {}
        for member in opened.getmembers():
            held = opened.extractfile(member)
            assert held is not None
            found[member.name.partition("/")[2]] = held.read().decode()
        return found


def test_no_planted_secret_gets_in(planted: FakeAdmin, file: Path) -> None:
    target = file.parent / "dump.tar.gz"
    large = file.parent / "state" / "monitor" / "logs" / "large.log"
    large.write_text("".join(f"line {i} {'x' * 90}\n" for i in range(12_000)))
    code, out, err = run("support-dump", "-c", str(file), "--output", str(target))
    assert (code, err) == (0, "")
    assert "read it before you send it away" in out
    found = contents(target)
    assert sorted(found) == [
        "about.json",
        "configuration.json",
        "doctor.json",
        "history.json",
        "logs/large.log",
        "logs/shop.main.db1.log",
        "publishers/shop.main.db1.json",
    ]
    for name, text in found.items():
        for secret in PLANTED:
            assert secret not in text, name
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    # What helps is there all the same.
    assert "INFO serving shop/main/db1" in found["logs/shop.main.db1.log"]
    assert json.loads(found["configuration.json"])["file"]["publisher"]["state_dir"].endswith("/state")
    assert "db.password" in found["configuration.json"]
    flows = json.loads(found["publishers/shop.main.db1.json"])["flows"]
    assert flows[1]["cause"] == "mysql://root:[redacted]@db1 refused"
    assert json.loads(found["about.json"])["packages"]["grpcio"]
    assert json.loads(found["doctor.json"])["findings"]
    # A long log is cut: its end is there, from a whole line on.
    lines = found["logs/large.log"].splitlines()
    assert lines[0].startswith("line ")
    assert lines[-1].startswith("line 11999 ")
    assert len(lines) < 11_500


def test_another_file_is_not_written_over(planted: FakeAdmin, file: Path) -> None:
    code, out, err = run("support-dump", "-c", str(file), "--output", str(file))
    assert (code, out) == (2, "")
    assert "File exists" in err
    assert file.read_text().startswith("version = 1")


def test_what_does_not_answer_is_named_in_it(file: Path) -> None:
    target = file.parent / "dump.tar.gz"
    code, out, _ = run("support-dump", "-p", "127.0.0.1:1", "--output", str(target), "--json")
    told = json.loads(out)
    assert (code, told["file"]) == (0, str(target))
    assert "does not answer" in told["problems"][0]
    assert told["entries"] == ["about.json", "configuration.json", "doctor.json", "problems.txt"]
    assert "does not answer" in contents(target)["problems.txt"]
