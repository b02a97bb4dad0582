"""What a publisher, a monitor and ``wormholectl up`` of the release before left on their host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from monitor.last_good_config import LastGoodConfig
from monitor.processes import find
from monitor.state import LogKey
from tests.support import command_line
from wormhole.config import load
from wormhole.coordination.host_files import HostFiles
from wormhole.coordination.port import HistoryEntry, HostRequest
from wormhole.coordination.up_data_folder import embedded_coordinator
from wormhole.host.ready_file import ReadyFile, process_started, read_ready

STARTED = 1_700_000_000.0
KEY = LogKey("shop", "main", "db1")


def test_history_and_requests_of_a_host_without_zookeeper_are_read(before: Path) -> None:
    files = HostFiles(before / "host")
    assert files.request("host1") == HostRequest(True, "eve@host1", STARTED + 2.5)
    drained = HistoryEntry(STARTED + 1.5, "eve@host1", "hosts drain", "host1", "", "drained")
    paused = HistoryEntry(STARTED + 2.5, "eve@host1", "flows pause", "cache/db1", "", "paused: ü")
    assert files.history(10) == (paused, drained)
    resumed = HistoryEntry(STARTED + 9, "eve@host1", "flows resume", "cache/db1", "paused: ü", "")
    files.record(resumed)
    assert files.history(10) == (resumed, paused, drained)


def test_a_monitor_starts_from_the_configuration_that_was_kept(before: Path) -> None:
    kept = LastGoodConfig.load(before / "host/last-good.json")
    assert kept == LastGoodConfig(load(before / "fleet.toml").datasets, True, STARTED + 0.25)


def test_a_monitor_finds_the_publishers_that_one_of_before_started(before: Path, tmp_path: Path) -> None:
    running = before / "host/running"
    (file,) = running.iterdir()
    assert load(file).datasets["shop"].copies["main"].logs["db1"].host == "host1"
    waiting = tmp_path / "waiting.py"
    waiting.write_text("import sys\nprint('runs', flush=True)\nsys.stdin.read()\n")
    # As the monitor of before wrote the command line; what runs is only the script.
    command = [str(waiting), "-m", "wormhole.cli", "publisher", "run", "-c", str(file), "--log", str(KEY)]
    with subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        (found,) = find(running)
        assert (found.key, found.digest, found.pid) == (KEY, "0123456789abcdef", process.pid)
        assert found.started == process_started(process.pid)


def test_a_publisher_of_before_is_asked_at_its_addresses(before: Path) -> None:
    file = before / "rocksdb/state/shop/main/db1/publisher.json"
    written = json.loads(file.read_text())
    # The process that wrote it is gone; this one has its place.
    assert read_ready(file) is None
    started = process_started(os.getpid())
    assert started is not None
    file.write_text(json.dumps({**written, "pid": os.getpid(), "started": started}))
    expected = ReadyFile(os.getpid(), started, written["admin"], written["http"], written["version"], written["config"])
    assert read_ready(file) == expected


def test_commands_find_the_zookeeper_that_up_embeds(before: Path, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    folder = tmp_path / ".wormhole/shop"
    folder.parent.mkdir()
    (before / "host/up").rename(folder)
    found = embedded_coordinator(file)
    assert (found.zookeeper, found.session_timeout) == ("127.0.0.1:2181/wormhole", 7.0)


def test_down_ends_what_up_of_before_ran(before: Path) -> None:
    folder, file = before / "host/up", before / "fleet.toml"
    written = json.loads((folder / "up.json").read_text())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        running = {**written, "pid": process.pid, "started": process_started(process.pid)}
        (folder / "up.json").write_text(json.dumps(running))
        code, out, err = command_line.run("down", "-f", str(file), "--data", str(folder))
        assert (code, out, err) == (0, f"stopped {file}\n", "")
    assert not (folder / "up.json").exists()
