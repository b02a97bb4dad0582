from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from tests.unit.wormholectl.doctor.test_redact import PEM, SECRET

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
    (logs / "large.log").write_text("".join(f"line {i} {SECRET[:0]}{'x' * 90}\n" for i in range(20_000)))
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


def test_of_a_long_log_the_end_from_a_whole_line_on(planted: FakeAdmin, file: Path) -> None:
    target = file.parent / "dump.tar.gz"
    run("support-dump", "-c", str(file), "--output", str(target))
    lines = contents(target)["logs/large.log"].splitlines()
    assert lines[0].startswith("line ")
    assert lines[-1].startswith("line 19999 ")
    assert len(lines) < 15_000


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
