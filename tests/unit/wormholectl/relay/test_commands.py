"""``wormholectl relay``, and for how long a relay lasts at the measured rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.postgres.doctor import examination as postgres_doctor
from datastores.postgres.server.address import Address
from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from tests.support.publisher_status import relay, status
from tests.support.relay_scene import FilesScene
from wormhole.admin import admin_service
from wormhole.admin.admin_service import Answer
from wormhole.config import parse, relay_of
from wormhole.config.datastores import datastore
from wormhole.host.where import Where
from wormhole.model.errors import StreamBroken
from wormhole.model.findings import LogGrowth, Report, Severity
from wormhole.wire.v1 import admin_pb2
from wormholectl.init.texts import Project, configuration
from wormholectl.relay.sizing import RelayPlan, findings, free_bytes, growth_text, lasts, plan_of

# --- commands ---


LOG = "shop/main/db1"


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    told = status("db1")
    told.relay.CopyFrom(relay())
    return FakeAdmin([Answer("h:7", told)]).install(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration with one relay, whose folder has three files, and no publisher."""
    made = tmp_path / "shop.toml"
    made.write_text(
        "version = 1\n[coordinator]\nstatic = true\n[publisher]\nstate_dir = 'state'\n"
        "[datasets.shop.copies.main.logs.db1]\nsource = 'postgres://w@127.0.0.1:1/shop'\n"
    )
    scene = FilesScene(tmp_path / "state" / "shop" / "main" / "db1" / "relay", file_bytes=2000)
    scene.files.begin(scene.start)
    for _ in range(3):
        scene.recorded(rows=10, size=100)
    scene.files.close()
    return made


def trims(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch, losing: list[str]) -> list[admin_pb2.TrimRelayRequest]:
    """What the publisher is asked to remove."""
    asked: list[admin_pb2.TrimRelayRequest] = []

    def trim(answer: Answer, request: admin_pb2.TrimRelayRequest) -> admin_pb2.TrimRelayReply:
        kept = admin_pb2.TrimRelayRequest()
        kept.CopyFrom(request)
        asked.append(kept)
        after = relay() if request.preview else relay(bytes=min(request.keep_bytes, 3 << 30))
        return admin_pb2.TrimRelayReply(before=relay(), after=after, losing=losing)

    monkeypatch.setattr(admin_service, "trim_relay", trim)
    return asked


def test_what_a_publisher_reports(admin: FakeAdmin) -> None:
    code, out, _ = run("relay", "show", "-p", "h:7")
    assert code == 0
    assert out.startswith(f"{LOG}:\n  relay (hold): 9.0 GiB of log in 3.0 GiB of at most 8.0 GiB\n")
    (found,) = check("relay-show", run("relay", "show", LOG, "-p", "h:7", "--json")[1])["relays"]
    assert (found["log"], found["reported"], found["folder"]) == (LOG, True, None)


def test_without_a_publisher_the_folder_is_read(file: Path) -> None:
    folder = file.parent / "state" / LOG / "relay"
    code, out, err = run("relay", "show", "-c", str(file))
    assert code == 0, err
    assert f"{LOG}:\n  relay (hold): " in out
    assert "read from its files: no publisher reports it now" in out
    assert f"files in {folder}" in out
    (found,) = check("relay-show", run("relay", "show", "-c", str(file), "--json")[1])["relays"]
    assert (found["reported"], found["folder"], found["relay"]["recording"]) == (False, str(folder), None)
    assert len(found["relay"]["stretches"]) == 1
    (named,) = check("relay-show", run("relay", "show", "--folder", str(folder), "--json")[1])["relays"]
    assert (named["log"], named["relay"]["mode"]) == (None, None)
    assert named["relay"]["log_bytes"] == found["relay"]["log_bytes"] > 0
    code, _, err = run("relay", "show", "--folder", str(file))
    assert (code, "is no folder" in err) == (2, True)


def test_a_whole_reading_says_which_file_is_damaged(file: Path) -> None:
    folder = file.parent / "state" / LOG / "relay"
    code, out, _ = run("relay", "verify", "-c", str(file))
    assert (code, "every checksum is right" in out) == (0, True)
    assert check("relay-verify", run("relay", "verify", "-c", str(file), "--json")[1])["relays"][0]["ok"]
    first = min(folder.glob("*.wrf"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    code, out, _ = run("relay", "verify", "-c", str(file))
    assert code == 1
    assert "DAMAGED: " in out
    assert "1 file damaged" in out
    code, out, _ = run("relay", "verify", "--folder", str(folder), "--json")
    (found,) = check("relay-verify", out)["relays"]
    assert (code, found["ok"], bool(found["files"][0]["error"])) == (1, False, True)


def test_the_publisher_removes_after_saying_who_loses(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = trims(admin, monkeypatch, ["cache/db1"])
    code, out, err = run("relay", "trim", "--keep", "1GiB", "-p", "h:7", "--yes")
    assert (code, out) == (0, "removed 2.0 GiB; 1.0 GiB are left\n")
    assert "2.0 GiB of them to be removed" in err
    assert "needed next by 1 flow: cache/db1" in err
    assert [(one.preview, one.keep_bytes) for one in asked] == [(True, 1 << 30), (False, 1 << 30)]
    code, _, err = run("relay", "trim", "--all", "-p", "h:7")
    assert (code, "the question cannot be asked" in err) == (2, True)
    assert len(asked) == 3, "looked at only"
    trims(admin, monkeypatch, [])
    out = run("relay", "trim", "--all", "--yes", "-p", "h:7", "--json")[1]
    assert check("relay-trim", out) == {"schema": 1, "log": LOG, "removed_bytes": 3 << 30, "bytes": 0}


def test_without_a_publisher_the_files_are_removed_here(file: Path) -> None:
    folder = file.parent / "state" / LOG / "relay"
    code, out, err = run("relay", "trim", LOG, "--all", "--yes", "-c", str(file))
    assert (code, "0 B are left" in out) == (0, True), err
    assert "no publisher reports which flows need them" in err
    assert not [*folder.glob("*.wrf")]


def test_one_relay_at_a_time_is_trimmed(admin: FakeAdmin) -> None:
    other = status("db2")
    other.relay.CopyFrom(relay())
    admin.answers.append(Answer("h:8", other))
    code, _, err = run("relay", "trim", "--all", "-p", "h:7")
    assert (code, "name one: shop/main/db1, shop/main/db2" in err) == (2, True)


def test_when_nothing_answers_and_nothing_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(where: object) -> list[Answer]:
        raise StreamBroken("nobody answers", hint="start it")

    monkeypatch.setattr(admin_service, "ask_each", silent)
    code, _, err = run("relay", "show", "-p", "h:7")
    assert (code, "nobody answers" in err) == (3, True)


def test_a_log_that_is_not_in_the_file_is_not_blamed_on_its_publisher(file: Path) -> None:
    code, _, err = run("relay", "show", "shop/main/db2", "-c", str(file))
    assert (code, f"next: name one of {LOG}" in err) == (2, True), err


def test_files_of_a_relay_that_was_turned_off_are_found(file: Path) -> None:
    file.write_text(f"{file.read_text()}relay = 'off'\n")
    code, out, err = run("relay", "show", "-c", str(file))
    assert (code, "relay (off): " in out) == (0, True), err


def test_nobody_is_asked_when_nothing_would_go(file: Path, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = trims(admin, monkeypatch, [])
    code, out, err = run("relay", "trim", "--keep", "8GiB", "-p", "h:7")
    assert (code, out) == (0, "removed 0 B; 3.0 GiB are left\n"), err
    assert [one.preview for one in asked] == [True]
    admin.answers.clear()
    folder = file.parent / "state" / LOG / "relay"
    code, out, err = run("relay", "trim", "--keep", "8GiB", "--folder", str(folder))
    assert (code, out.startswith("removed 0 B; ")) == (0, True), err


def test_a_file_whose_datasets_are_stored_elsewhere(
    monkeypatch: pytest.MonkeyPatch, file: Path, tmp_path: Path
) -> None:
    from wormhole.admin import discovery
    from wormhole.config import load
    from wormhole.coordination.port import StoredConfig

    whole = load(file)
    bare = tmp_path / "host.toml"
    bare.write_text("version = 1\n[coordinator]\nzookeeper = '127.0.0.1:1'\n[sources]\n")
    stored = StoredConfig(whole.datasets, {}, 1)
    monkeypatch.setattr(discovery, "ask_coordinator", lambda target, use: stored)
    monkeypatch.setattr(admin_service, "ask_each", lambda where: [])
    code, _, err = run("relay", "show", "-c", str(bare), "--state-dir", str(tmp_path / "state"))
    assert (code, "no log there has a relay" in err) == (2, True), "this host does not list its source"


# --- sizing ---


GIB = 1 << 30
DAY = LogGrowth(24 * GIB, 86_400.0, "sizes and times of 12 binlog files")
PLAN = RelayPlan("hold", 9 * GIB, GIB)


def test_a_rate_is_told_with_how_it_was_measured() -> None:
    assert growth_text(DAY) == "1.0 GiB an hour, over the last 1d 0h (sizes and times of 12 binlog files)"
    assert growth_text(LogGrowth(unknown="too young")) == "not measured: too young"
    assert lasts(DAY, 9 * GIB) == "about 9h 0m at the rate of the last 1d 0h"
    assert lasts(LogGrowth(unknown="too young"), GIB) == lasts(LogGrowth(0, 60.0), GIB) == ""


@pytest.mark.parametrize(
    ("growth", "plan", "what"),
    [
        (DAY, PLAN, "uncompressed about 9h 0m at the rate of the last 1d 0h; the server keeps 1.0 GiB, about 1h 0m"),
        (DAY, RelayPlan("cache", 9 * GIB, 0), "the relay (cache) holds 9.0 GiB, uncompressed about 9h 0m at the rate"),
        (None, PLAN, "for how long is not known: the datastore does not say how fast its log grows"),
        (LogGrowth(unknown="too young"), PLAN, "for how long is not known: too young"),
        (LogGrowth(0, 7200.0), PLAN, "the log did not grow in the last 2h 0m"),
    ],
)
def test_what_is_said_of_a_relay(growth: LogGrowth | None, plan: RelayPlan, what: str) -> None:
    (found,) = findings(growth, plan)
    assert (found.severity, what in found.what) == (Severity.OK, True), found.what


def test_a_relay_that_lasts_less_than_an_hour_is_noted() -> None:
    (found,) = findings(LogGrowth(100 * GIB, 3600.0, "x"), PLAN)
    assert (found.severity, "raise relay_budget" in found.next_step) == (Severity.WARN, True)
    assert "loses what only the relay has" in found.because
    (cached,) = findings(LogGrowth(100 * GIB, 3600.0, "x"), RelayPlan("cache", 9 * GIB, 0))
    assert cached.because == ""


def test_the_disk_has_to_have_the_budget() -> None:
    assert len(findings(DAY, RelayPlan("hold", 9 * GIB, GIB, Path("/r"), 9 * GIB))) == 1
    found = findings(DAY, RelayPlan("hold", 9 * GIB, GIB, Path("/r"), 8 * GIB))[1]
    assert (found.check, found.severity) == ("relay_disk", Severity.WARN)
    assert found.what == "the disk of /r has 8.0 GiB for a relay of 9.0 GiB"


def test_without_a_relay_nothing_is_said() -> None:
    assert findings(DAY, RelayPlan("off", GIB, 0)) == []


def test_the_room_counts_what_the_relay_takes_already(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "not" / "there") is not None
    (tmp_path / "relay-00000000000000000001.wrf").write_bytes(b"x" * 100)
    assert (free_bytes(tmp_path) or 0) > 0


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(address: Address) -> Report:
        return Report(str(address), growth=DAY)

    monkeypatch.setattr(postgres_doctor, "check", check)


def test_doctor_sizes_the_default_relay_and_that_of_a_file(measured: None, tmp_path: Path) -> None:
    url, password = "postgres://w@127.0.0.1:5/shop", tmp_path / "password"
    password.write_text("p")
    password.chmod(0o600)
    code, out, err = run("doctor", url, "--password-file", str(password))
    assert code == 0, err
    assert "log grows: 1.0 GiB an hour" in out
    assert "the relay (hold) holds 8.0 GiB, uncompressed about 8h 0m" in out
    file = tmp_path / "shop.toml"

    def examined(settings: str) -> str:
        file.write_text(
            "version = 1\n[publisher]\nstate_dir = 'state'\n"
            f"[datasets.shop.copies.main.logs.db1]\nsource = '{url}'\n{settings}\n"
        )
        return run("doctor", url, "-c", str(file), "--password-file", str(password))[1]

    assert "the relay (cache) holds 1.0 GiB, uncompressed about 1h 0m" in examined(
        "relay = 'cache'\nrelay_budget = '1GiB'"
    )
    assert "the relay" not in examined("relay = 'off'")
    assert f"the disk of {tmp_path}/state/shop/main/db1/relay has" in examined("relay_budget = '900TiB'")
    assert "the disk of" not in examined("relay_budget = '900TiB'\nhost = 'elsewhere'")


def test_the_disk_of_a_relay_is_looked_at_where_a_candidate_of_the_log_runs(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    head = 'version = 1\n[coordinator]\nzookeeper = "zk1:2181"\n'
    head += '[publisher]\nmarkers = "zookeeper"\nstate_dir = "state"\n'
    log = '[datasets.shop.copies.main.logs.db1]\nsource = "mysql://w@db"\nrelay = "cache"\nhosts = ["db-7", "db-8"]\n'
    for host, here in (("db-8", True), ("db-9", False)):
        file.write_text(f'{head}[monitor]\nhost = "{host}"\n{log}')
        plan = plan_of(datastore("mysql"), Where(coordinator=str(file)), "shop/main/db1")
        assert (plan.mode, plan.free is not None) == ("cache", here)


def written(source: str, growth: LogGrowth | None = None, free: int | None = None) -> str:
    project = Project("shop", "cache", source, log="db1", growth=growth, free=free)
    text = configuration(project)
    parse(text, "shop.toml")
    return text


def test_init_writes_what_was_measured_beside_each_choice() -> None:
    text = written("postgres://w@127.0.0.1/shop", DAY)
    assert 'relay = "hold"\nrelay_budget = "8GiB"  # about 8h 0m at the rate of the last 1d 0h\n' in text
    assert 'slot_budget = "1GiB"  # what the server keeps at most, about 1h 0m at the rate' in text
    assert relay_of(parse(text, "shop.toml"), "shop", "main", "db1") == "hold"
    assert "`wormholectl doctor` measures it" in written("postgres://w@127.0.0.1/shop")
    assert '# relay = "cache"' in written("mysql://w@127.0.0.1", DAY)
    assert "relay" not in written("rocksdb:///x", DAY)


def test_init_leaves_half_of_the_disk_free() -> None:
    assert 'relay_budget = "2GiB"' in written("postgres://w@127.0.0.1/shop", DAY, 5 * GIB)
    assert 'relay_budget = "128MiB"' in written("postgres://w@127.0.0.1/shop", DAY, 0)
