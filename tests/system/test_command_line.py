"""Every verb of ``wormholectl`` against what ``wormholectl up -f examples/shop.toml --detach`` runs: what it does,
what it refuses, and its JSON against docs/cli-schema.json."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from scripts.prepare import ROOT
from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.eventually import until
from tests.support.pages import Page
from tests.support.ports import free_port
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.processes import Process
from wormhole.admin.admin_service import describe
from wormhole.coordination.current_user import current_user
from wormhole.host import process_guard
from wormhole.host.ready_file import read_ready, ready_path

_MAIN: Final = "from wormholectl import main; main()"
_SUBSCRIBER: Final = """
from tests.system.harness.child import die_with_parent
die_with_parent()
import asyncio
import sys
from pathlib import Path
from subscriber_sdk import Subscriber, Update, run

class Cache(Subscriber):
    async def on_update(self, update: Update) -> None:
        while update.key[0] == b"slow" and not Path(sys.argv[2]).exists():
            await asyncio.sleep(0.05)
        if update.key[0].startswith(b"bad"):
            raise ValueError("cannot bear it")

run(Cache(), application="cache", coordinator=sys.argv[1], id="c1")
"""


class Shop:
    """The example, with its store in a folder of this test: everything it starts ends with this process, however
    that ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer = RocksWriter(folder / "store")
        self.file = folder / "shop.toml"
        example = (ROOT / "examples" / "shop.toml").read_text()
        assert "rocksdb:///var/lib/shop" in example
        page = f'\n[monitor]\nhost = "alpha"\nlisten = "127.0.0.1:{free_port()}"\n'
        self.file.write_text(example.replace("rocksdb:///var/lib/shop", f"rocksdb://{self.writer.path}") + page)
        self.state = folder / ".wormhole" / "shop" / "state"
        self.subscriber = Process("subscriber", ["-c", _SUBSCRIBER, str(self.file), str(folder / "go on")], folder)
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """`up --detach`, by a shell that stays, so that the guard sees to what it leaves behind."""
        output = self.folder / "up.out"
        up = f'"{sys.executable}" -m wormholectl up -f "{self.file}" --detach; echo "up ended with $?"; exec sleep 1000'
        with output.open("wb") as written:
            guard = [sys.executable, "-I", "-S", process_guard.__file__, str(os.getpid()), "", "sh", "-c", up]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            self._guard = subprocess.Popen(guard, stdout=subprocess.DEVNULL, stderr=written, cwd=ROOT, env=environment)
        self.until(lambda: "up ended with" in output.read_text(), "up ends")
        assert "up ended with 0" in output.read_text(), output.read_text()
        self.writer.put(b"k1", b'{"status": "paid"}')
        self.subscriber.start()
        self.until(lambda: self.flow()["state"] == "live", "the flow is live")

    def close(self) -> None:
        with contextlib.suppress(AssertionError):
            self.subscriber.kill()
        try:
            run("down", "-f", str(self.file))
        finally:
            if self._guard is not None:
                self._guard.terminate()
                self._guard.wait()
            self.writer.exit()

    def until(self, true: Callable[[], object], what: str) -> None:
        """Other processes tell no event: look until it is so."""
        until(true, lambda: f"{what}: not so; {self.subscriber.tail()}\n{self('flows')}")

    def __call__(self, *words: str) -> tuple[int, str, str]:
        return run(*words, "-c", str(self.file))

    def told(self, name: str, *words: str, code: int = 0) -> Any:
        """What the command says to a program, which has to be as it is defined."""
        found, out, err = self(*words, "--json")
        assert (found, err) == (code, ""), (words, out, err)
        return check(name, out)

    @property
    def admin(self) -> str:
        ready = read_ready(ready_path(self.state, "shop", "main", "db1"))
        return "" if ready is None else ready.admin

    def flow(self, name: str = "cache/db1") -> Any:
        (found,) = (one for one in json.loads(self("flows", "--json")[1])["flows"] if one["flow"] == name)
        return found

    def caught_up(self) -> None:
        self.until(lambda: (flow := self.flow())["state"] == "live" and flow["lag_bytes"] == 0, "caught up")

    def history(self) -> list[str]:
        return [entry["what"] for entry in self.told("config-history", "config", "history")["entries"]]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    made = Shop(tmp_path_factory.mktemp("shop"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_every_noun_lists(shop: Shop) -> None:
    for noun in ("publishers", "shards", "caravans", "subscribers", "flows", "markers", "hosts"):
        listed = shop.told(noun, noun)[noun]
        assert listed, noun
        code, out, err = shop(noun)
        assert (code, err) == (0, ""), noun
        assert len(out.splitlines()) > 1, noun
    assert shop.told("dead-letters", "flows", "dead-letters")["total"] == 0
    assert [one["flow"] for one in shop.told("flows", "flows", "-a", "search")["flows"]] == ["search/db1"]
    assert shop.told("flows", "flows", "--state", "held")["flows"] == []
    assert shop.told("markers", "markers", "show", "cache/db1")["markers"][0]["marker"]
    (host,) = shop.told("hosts", "hosts")["hosts"]
    assert (host["host"], host["publishers"], host["drained"]) == ("alpha", {"shop/main/db1": "running"}, False)
    assert shop("caravans", "-p", shop.admin)[0] == 0


def test_a_handler_that_hangs_is_named(shop: Shop) -> None:
    shop.caught_up()
    shop.writer.put(b"slow", b"{}")
    shop.until(lambda: shop.told("why-lag", "why-lag", "cache/db1")["stage"] == "handler", "the handler is found")
    assert "its callback works on update" in shop("why-lag", "cache/db1")[1]
    (shop.folder / "go on").touch()
    shop.caught_up()


def test_doctor_and_dump(shop: Shop, tmp_path: Path) -> None:
    report = shop.told("doctor", "doctor")
    assert {"coordinator", "monitors", "publishers", "flows", "versions", "clock", "disk"} <= {
        finding["check"] for finding in report["findings"]
    }
    target = tmp_path / "dump.tar.gz"
    told = shop.told("support-dump", "support-dump", "--output", str(target))
    assert told["problems"] == []
    token = (shop.state / "admin.token").read_text().strip()
    with tarfile.open(target) as archive:
        texts = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        held = {name: file.read().decode() for name, file in texts.items() if file is not None}
    assert "dump/publishers/shop.main.db1.json" in held
    assert any(name.startswith("dump/logs/") for name in held)
    assert not any(token in text for text in held.values())


CHANGES: Final = [
    ["flows", "pause", "cache/db1"],
    ["flows", "resume", "cache/db1"],
    ["flows", "skip", "cache/db1", "--update", "db1:1:0"],
    ["flows", "accept-loss", "cache/db1"],
    ["flows", "dead-letters", "retry", "cache/db1"],
    ["flows", "dead-letters", "discard", "cache/db1", "--all"],
    ["markers", "set", "cache/db1", "latest"],
    ["markers", "rewind", "cache/db1", "--since", "2h"],
    ["markers", "forget", "cache/db1"],
    ["verify", "cache/db1"],
    ["repair", "cache/db1"],
]


def test_changes_that_are_asked_wrongly_change_nothing(shop: Shop) -> None:
    before = shop.flow()["marker"], shop.history()
    for words in CHANGES:
        unknown = [word.replace("cache/db1", "cahce/db1") for word in words]
        code, out, err = shop(*unknown, "--yes")
        assert (code, out) == (2, ""), words
        assert "no flow 'cahce/db1'" in err
        assert "did you mean cache/db1" in err
        code, out, err = run(*words, "--yes", "-p", "127.0.0.1:1")
        assert (code, out) == (3, ""), words
        assert err.startswith("error [publisher-silent]: the publisher at 127.0.0.1:1 does not answer")
        assert "Traceback" not in err
        code, _, err = shop(*words)
        assert code in {1, 2}, words  # refused for what it is, or since the question cannot be asked
        assert "Traceback" not in err
    assert (shop.flow()["marker"], shop.history()) == before


def test_a_wrong_token_changes_nothing(shop: Shop) -> None:
    file = shop.state / "admin.token"
    right = file.read_text()
    assert describe(shop.admin).token_file == str(file)
    try:
        file.write_text("0" * 64)
        code, out, err = shop("flows", "pause", "cache/db1", "--yes")
        assert (code, out) == (2, "")
        assert "token" in err
        file.unlink()
        code, out, err = shop("flows", "dead-letters")
        assert (code, out) == (2, "")
        assert "No such file" in err
    finally:
        file.write_text(right)
        file.chmod(0o600)
    assert shop.flow()["paused"] is None


REFUSED: Final = {
    "accept-loss": "no loss of log",
    "skip": "",  # the example's update may be behind the marker by then
    "retry": "no update is parked",
    "discard": "is parked",
    "move": "no log has an owner or a publisher that stands by",  # docs/failover.md and its test have one that has
}
"""What the page shows and a flow that is well, or a log with one publisher, has no use for."""


def test_the_page_word_for_word(shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """docs/cli.md: every command, one after the other; a host is drained with them and used again."""
    page = Page(
        "docs/cli.md",
        {
            "db-7": "alpha",
            "--since 2h": "--since 1ms",
            "dump.tar.gz": f"{tmp_path}/dump.tar.gz",
            "=shop.toml": f"={shop.file}",
        },
    )
    monkeypatch.setenv("WORMHOLE_COORDINATOR", str(shop.file))
    lines = [line for block in page.blocks("sh") for line in block.splitlines()]
    assert f"export WORMHOLE_COORDINATOR={shop.file}" in lines
    for line in lines:
        if not line.startswith("wormholectl "):
            continue
        if not shop.flow()["paused"]:
            shop.caught_up()
        words = line.split()[1:]
        code, out, err = run(*words)
        assert "Traceback" not in err, line
        refusal = next((why for verb, why in REFUSED.items() if verb in words), None)
        if refusal is None:
            assert (code, err) == (0, ""), (line, out, err)
        elif code:
            assert refusal in err, line
        if "drain" in words and "--undo" not in words:
            shop.until(lambda: not shop.admin, "the publisher ends")
            assert run("drain", "alpha", "--undo", "--yes")[0] == 0
            shop.until(lambda: shop.admin and shop("flows")[0] == 0, "the publisher is back")


def test_a_host_is_drained_and_used_again(shop: Shop) -> None:
    code, out, err = shop("drain", "alpha")
    assert (code, "alpha is in use and would be drained" in out, "--yes" in err) == (2, True, True)
    code, _, err = shop("drain", "alfa", "--yes")
    assert (code, "did you mean alpha?" in err) == (2, True)
    assert shop.told("drain", "drain", "alpha", "--yes")["after"]["drained"] is True
    shop.until(lambda: not shop.admin, "the publisher ends")
    code, out, err = shop("flows")
    assert (code, out) == (3, "")
    drained = (
        f"host alpha is drained by {current_user()}: shop/main/db1 is not served, and the flows there are not known"
    )
    assert err.splitlines() == [
        f"error [host-drained]: {drained}",
        f"  next: `wormholectl drain alpha --undo -c {shop.file}` when the maintenance is over",
    ]
    undo = f"`wormholectl drain alpha --undo -c {shop.file}` when the maintenance is over"
    assert shop("lag", "cache")[:2] == (3, f"UNREACHABLE cache: {drained} [host-drained]. Next: {undo}\n")
    shop.told("drain", "drain", "alpha", "--undo", "--yes")
    shop.until(lambda: shop.admin and shop("flows")[0] == 0, "the publisher is back")
    shop.caught_up()
    assert shop.history()[:2] == ["drain --undo", "drain"]
