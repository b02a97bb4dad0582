"""Which dataset the archiver's command means, and the archiver's process."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest

from spark_replay.archive import run
from spark_replay.archive.choice import archived, archived_dataset, check_archive, check_formats
from spark_replay.archive.store import open_store
from tests.support.ports import free_port
from wormhole.config import ArchiveConfig, Config, load
from wormhole.formats import FormatSpec
from wormhole.model.errors import ConfigError, UsageError

# --- choice: which dataset `wormholectl archive run` means, and from where it knows it ---


def config(folder: Path, *archived: str) -> Config:
    parts = ["version = 1", '[coordinator]\nzookeeper = "127.0.0.1:2181/x"']
    for name in ("orders", "users"):
        parts.append(f'[datasets.{name}.copies.main.logs.db1]\nsource = "rocksdb:///srv/{name}"')
        if name in archived:
            parts.append(f'[datasets.{name}.archive]\nto = "/srv/archive/{name}"\napplication = "{name}-archive"')
            parts.append(f'[applications.{name}-archive]\ndataset = "{name}"\nstart = "earliest"')
    (folder / "shop.toml").write_text("\n".join(parts))
    return load(folder / "shop.toml")


@pytest.mark.parametrize(
    ("there", "named", "found", "told"),
    [
        (["users"], "", "users", ""),
        (["orders", "users"], "", "", "name one: orders, users"),
        (["orders", "users"], "orders", "orders", ""),
        ([], "", "", r"add \[datasets\.NAME\.archive\]"),
    ],
)
def test_the_only_one_need_not_be_named(tmp_path: Path, there: list[str], named: str, found: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) if told else nullcontext():
        assert archived_dataset(config(tmp_path, *there), named) == found


def test_a_file_is_read(tmp_path: Path) -> None:
    wanted = config(tmp_path, "orders")
    chosen = archived(str(tmp_path / "shop.toml"), "", [])
    assert (chosen.config.datasets, chosen.name, chosen.stored) == (wanted.datasets, "orders", False)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"shop\.toml"):
        archived(str(tmp_path / "shop.toml"), "", [])


@pytest.mark.parametrize(
    ("to", "given", "may"),
    [
        ("/srv/archive/orders", ["/srv/archive/orders"], True),
        ("/srv/archive/orders/", ["s3://b/a", "/srv/archive/x/../orders/"], True),
        ("s3://b/a?region=eu", ["s3://b/a?region=eu"], True),
        ("/srv/archive/orders", [], False),
        ("/srv/archive/orders", ["/srv/archive"], False),
        ("/srv/archive/../../etc", ["/srv/archive"], False),
        ("s3://b/a?endpoint_override=192.0.2.1", ["s3://b/a"], False),
        ("orders", ["/srv/archive/orders"], False),
    ],
)
def test_zookeeper_names_only_what_was_given(
    to: str, given: list[str], may: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = config(tmp_path, "orders").datasets["orders"].model_copy(update={"archive": ArchiveConfig(to=to)})
    if may:
        check_archive(dataset, given)
        return
    with pytest.raises(UsageError, match="only ZooKeeper records that") as refused:
        check_archive(dataset, given)
    assert "[datasets.orders.archive]" in str(refused.value.hint)


def test_zookeeper_names_no_descriptor_set() -> None:
    check_formats("shop", [None, FormatSpec("json")])
    with pytest.raises(UsageError, match=r"descriptor set /etc/x\.desc"):
        check_formats("shop", [None, FormatSpec("protobuf", Path("/etc/x.desc"), "a.B")])


# --- run: the archiver's process: it serves, tells its metrics, and leaves in order when it is told to ---


def configuration(folder: Path) -> Config:
    file = folder / "shop.toml"
    file.write_text(f"""
version = 1
[coordinator]
static = true
[datasets.shop]
archive = {{ to = "archive" }}
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{folder}/store"
[applications.archive]
dataset = "shop"
start = "earliest"
subscribers = {{ one = "127.0.0.1:{free_port()}" }}
""")
    return load(file)


@pytest.mark.allow_blocking("begins an archive, in a thread of its own")
async def test_it_runs_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import aiohttp

    warned: list[str] = []
    monkeypatch.setattr(run, "warn_interpreted", warned.append)
    port = free_port()
    working = asyncio.create_task(
        run._until_stopped(configuration(tmp_path), "shop", str(tmp_path / "shop.toml"), f"127.0.0.1:{port}", False)
    )
    async with aiohttp.ClientSession() as session:
        while True:
            assert not working.done(), working.exception()
            try:
                async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                    text = await answer.text()
                    break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.02)
    assert 'wormhole_subscriber_streams{application="archive",subscriber="one"} 0' in text
    assert warned == ["spark_replay"]
    os.kill(os.getpid(), signal.SIGTERM)
    await working
    assert open_store(str(tmp_path / "archive"), "shop").shards() == []


def test_a_dataset_without_an_archive(tmp_path: Path) -> None:
    found = configuration(tmp_path)
    found = found.model_copy(update={"datasets": {"shop": found.datasets["shop"].model_copy(update={"archive": None})}})
    with pytest.raises(ConfigError, match="dataset shop has no archive"):
        run.run(found, "shop", str(tmp_path / "shop.toml"))
