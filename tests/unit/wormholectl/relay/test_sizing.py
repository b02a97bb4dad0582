"""For how long a relay lasts at the rate that was measured, and what ``doctor`` and ``init`` make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.postgres.doctor import examination as postgres_doctor
from datastores.postgres.server.address import Address
from tests.support.command_line import run
from wormhole.config import parse, relay_of
from wormhole.config.datastores import datastore
from wormhole.host.where import Where
from wormhole.model.findings import LogGrowth, Report, Severity
from wormholectl.init.texts import Project, configuration
from wormholectl.relay.sizing import RelayPlan, findings, free_bytes, growth_text, lasts, plan_of

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
