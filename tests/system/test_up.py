"""`wormholectl up` with nothing but a file: an embedded ZooKeeper, a publisher, and what happens when it is killed."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from examples.demo.database_server import DatabaseServer
from tests.support.certificates import Authority
from tests.support.eventually import PATIENCE_S, until
from tests.support.marked import listening, marked
from tests.support.ports import free_port
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.up import Up


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksWriter]:
    made = RocksWriter(tmp_path / "store")
    made.put(b"k", b"v")
    yield made
    made.exit()


@pytest.fixture
def up(tmp_path: Path, store: RocksWriter) -> Iterator[Up]:
    with closing(Up(tmp_path, f'source = "rocksdb://{store.path}"')) as made:
        yield made


def open_to_others(folder: Path) -> list[str]:
    """What another user may read or enter, but for what may be: where a publisher listens, and pinned files, which
    are links to the database's own and protected by their folder."""
    found = [
        (path, path.stat()) for path in (folder.parent, *folder.parent.rglob("*")) if path.name != "publisher.json"
    ]
    return [str(path) for path, state in found if state.st_mode & 0o077 and (path.is_dir() or state.st_nlink == 1)]


def stored_modes(store: RocksWriter) -> dict[str, int]:
    """The modes of the database's own files that exist all the time."""
    return {
        path.name: path.stat().st_mode for path in Path(store.path).iterdir() if path.name in {"CURRENT", "IDENTITY"}
    }


def test_it_is_up_ready_refused_twice_killed_up_again_and_down(up: Up, store: RocksWriter) -> None:
    modes = stored_modes(store)
    code, text = up.up()
    assert code == 0, text
    assert "1 publisher running" in text
    assert up.publisher() is not None
    assert listening(marked(up.mark)) == {"127.0.0.1"}
    assert open_to_others(up.folder) == []
    assert stored_modes(store) == modes
    code, text = up.does("flows", "-c", str(up.file))
    assert code == 0, text
    assert "cache/db1" in text

    code, text = up.up()
    assert code == 2
    assert f"`wormholectl up` of {up.file} runs already" in text

    # Killed, it takes ZooKeeper along and leaves the publisher; the next one has both again, where they were.
    told, publisher = up.record(), up.publisher()
    handle = os.pidfd_open(told["pid"])
    os.kill(told["pid"], signal.SIGKILL)
    assert select.select([handle], [], [], PATIENCE_S)[0]
    os.close(handle)
    assert up.publisher() == publisher
    code, text = up.up()
    assert code == 0, text
    assert up.publisher() == publisher
    assert up.record()["coordinator"] == told["coordinator"]

    code, text = up.down()
    assert (code, text) == (0, f"stopped {up.file}\n")
    assert marked(up.mark) == {}
    assert f"process {publisher} keeps running" in (up.folder / "up.log").read_text()


def test_what_is_not_ready_is_said(up: Up) -> None:
    (up.folder / "state/shop/main/db1/markers.sqlite").mkdir(parents=True)
    text = up.file.read_text().replace("[datasets", 'restart = { first_wait = "10ms", crashes = 1 }\n[datasets', 1)
    up.file.write_text(text + 'subscribers = { s1 = "127.0.0.1:9" }\n')  # the static form: no ZooKeeper has to start
    code, text = up.up()
    assert code == 1, text
    assert "shop/main/db1 is not ready, given up: " in text
    assert "markers.sqlite cannot open" in text
    assert up.down()[0] == 0
    assert marked(up.mark) == {}


def test_a_wrong_password_is_one_cause_everywhere(tmp_path: Path, mariadb_server: DatabaseServer) -> None:
    """The publisher runs, because it has a stored datamarker or not: its log is what it cannot read."""
    server, password = mariadb_server, tmp_path / "password"
    password.write_text(server.password_file.read_text())
    password.chmod(0o600)
    source = f'source = "{server.flavour}://{server.user}@{server.host}:{server.port}"\npassword_file = "{password}"'
    with closing(Up(tmp_path, source)) as up:
        code, text = up.up()
        assert (code, "1 publisher running" in text) == (0, True), text
        assert up.down()[0] == 0
        password.write_text("wrong\n")  # datamarkers are stored by now
        code, text = up.up()
        assert (code, "1 publisher running, 0 ready" in text) == (1, True), text
        refused = "the server refuses the account or its password"
        assert text.count(refused) == 1, text
        assert "password_file in the configuration" in text
        for command, expected in (("lag cache", 3), ("flows", 0), ("publishers", 0), ("doctor", 1)):
            code, text = up.does(*command.split(), "-c", str(up.file))
            assert (code, text.count(refused)) == (expected, 1), (command, text)
            assert "password_file in the configuration" in text, command
        assert up.down()[0] == 0


def test_a_sink_is_filled_over_mutual_tls(up: Up, store: RocksWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Authority(up.file.parent / "certificates").issue("one")
    lines = up.file.parent / "lines"
    lines.mkdir()
    monkeypatch.setenv("WORMHOLE_PUBLISHERS", "one")
    text = up.file.read_text().replace("[applications.cache]", "[applications.lines]")
    up.file.write_text(f"""{text}
subscribers = {{ one = "127.0.0.1:{free_port()}" }}
[sinks.lines]
url = "jsonlines://{lines}"
[tls]
cert = "{files.cert}"
key = "{files.key}"
ca = "{files.ca}"
""")
    code, text = up.up()
    assert (code, "1 publisher running, 1 sink running" in text) == (0, True), text
    store.put(b"new", b"v")
    until(lambda: any(file.stat().st_size for file in lines.iterdir()), (up.folder / "up.log").read_text)
    code, text = up.does("sink", "show", "-c", str(up.file))
    assert (code, "1 live" in text) == (0, True), text
    assert up.down()[0] == 0
