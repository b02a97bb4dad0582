"""The largest event that a server logs, read from a real one by a process whose memory is watched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.databases import DatabaseServer, start_server

MIB = 1 << 20
BOUND = 64 * MIB
"""``max_update_bytes``, the default."""
CONSTANT = 16 * MIB

_READ = """
import json, sys, time
from pathlib import Path
from publisher.sources import open_source
from wormhole.ports.datastore import Login
from wormhole.model.sharding import Sharding

url, state, password = json.loads(sys.argv[1])

def status(name):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(name + ":"))

source = open_source(url, log="log", state_dir=Path(state), sharding=Sharding("log"), login=Login(password and Path(password)))
source.start()
start, end = source.earliest(), source.latest()
reader = source.open(start)
before, begun, cpu = status("VmRSS"), time.monotonic(), time.process_time()
updates = size = 0
while (segment := reader.read(1 << 18, 5.0)) is not None:
    for run in segment.runs.values():
        updates += len(run.ends)
        size += len(run.blob)
    place = segment.end
    run = segment = None
    if place >= end.order:
        break
print(json.dumps([updates, size, reader.too_large, status("VmHWM") - before, time.monotonic() - begun, time.process_time() - cpu]))
reader.close()
source.stop()
"""  # noqa: E501


def read(server: DatabaseServer, state: Path) -> tuple[int, int, int, int, float, float]:
    """Updates, their bytes, those without values, and the memory and seconds that reading the whole log took a
    process."""
    told = json.dumps([server.url, str(state), str(server.password_file or "")])
    done = subprocess.run([sys.executable, "-c", _READ, told], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: tuple[int, int, int, int, float, float] = tuple(json.loads(done.stdout.splitlines()[-1]))
    return found


def log_of(flavour: str, *sizes: int, engine: str = "MyISAM", **options: str) -> DatabaseServer:
    server = start_server(flavour, max_allowed_packet="1G", **options)
    server.sql("CREATE DATABASE big", f"CREATE TABLE big.t (id INT PRIMARY KEY, v LONGBLOB) ENGINE = {engine}")
    for key, size in enumerate(sizes):
        server.sql(f"INSERT INTO big.t VALUES ({key}, REPEAT('x', {size}))")
    return server


@pytest.mark.soak
@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_row_of_nearly_a_gibibyte(flavour: str, tmp_path: Path) -> None:
    """Work is linear: four times the bytes take at most six times the processor's time.

    The clock only judges in `make soak`."""
    cpu = []
    for n, size in enumerate((250_000_000, 1_000_000_000)):
        with log_of(flavour, size, 5, 60 * MIB) as server:
            updates, bytes_, too_large, memory, seconds, used = read(server, tmp_path / str(n))
        print(
            f"{flavour}: a row of {size:,} bytes: {memory / MIB:.0f} MiB more, {seconds:.1f} s, {used:.1f} s "
            "of the processor"
        )
        assert (updates, too_large) == (3, 1)
        assert 60 * MIB < bytes_ < 60 * MIB + 1000
        assert memory < 2 * BOUND + CONSTANT
        cpu.append(used)
    assert cpu[1] < 6 * cpu[0] + 0.5


@pytest.mark.soak
def test_a_compressed_transaction_of_nearly_a_gibibyte(tmp_path: Path) -> None:
    options = {"binlog_transaction_compression": "ON", "innodb_redo_log_capacity": "4G"}
    with log_of("mysql", 1_000_000_000, 5, 60 * MIB, engine="InnoDB", **options) as server:
        updates, _, too_large, memory, seconds, _ = read(server, tmp_path)
        print(f"compressed: {memory / MIB:.0f} MiB more, {seconds:.1f} s")
    assert (updates, too_large) == (3, 1)
    assert memory < 2 * BOUND + CONSTANT


@pytest.mark.soak
def test_a_compressed_event_of_nearly_a_gibibyte(tmp_path: Path) -> None:
    with log_of("mariadb", 1_000_000_000, 5, 60 * MIB, log_bin_compress="ON") as server:
        updates, _, too_large, memory, seconds, _ = read(server, tmp_path)
        print(f"compressed: {memory / MIB:.0f} MiB more, {seconds:.1f} s")
    assert (updates, too_large) == (3, 1)
    assert memory < 2 * BOUND + CONSTANT
