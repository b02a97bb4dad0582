"""What `wormholectl zookeeper` says and refuses; docs/zookeeper.md and its test have the whole way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_configuration_page import FILE
from tests.support.command_line import run
from wormhole.config import CoordinatorConfig
from wormhole.coordination.kazoo_client import connect_blocking, disconnect_blocking, new_client
from wormhole.coordination.up_data_folder import up_folder, write_embedded


def test_who_would_be_locked_out_is_shown_before_anything_is_closed(
    zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.toml").write_text(FILE.format(zookeeper=zookeeper))
    assert run("config", "apply", str(tmp_path / "shop.toml"), "--yes")[0] == 0
    assert run("zookeeper", "credentials", "--to", str(tmp_path / "files"), "-c", zookeeper)[0] == 0
    open_one = CoordinatorConfig(zookeeper=zookeeper)
    client = new_client(open_one)
    connect_blocking(client, open_one)
    try:
        client.create(client.paths.subscriber("cache", "old-one"), b"{}", ephemeral=True, makepath=True)
        operator = str(tmp_path / "files" / "operator")
        close = ("zookeeper", "close", "-c", zookeeper)
        monkeypatch.setenv("WORMHOLE_COORDINATOR_AUTH_FILE", operator)
        code, out, err = run(*close)
        monkeypatch.delenv("WORMHOLE_COORDINATOR_AUTH_FILE")
        assert (code, "the question cannot be asked" in err) == (2, True), err
        assert "subscribers/old-one" in out
        assert run("config", "show", "-c", zookeeper)[0] == 0, "nothing was closed"
        code, out, _ = run(*close, "--credentials", operator, "--yes")
        assert (code, "is closed to clients without credentials" in out) == (0, True)
        assert run("config", "show", "-c", zookeeper)[0] == 2
    finally:
        disconnect_blocking(client)
    code, out, _ = run("zookeeper", "credentials", "--to", str(tmp_path / "files"), "-c", zookeeper)
    assert (code, "it is closed to all others" in out) == (0, True)


@pytest.mark.parametrize("command", [("credentials", "--to", "files"), ("close", "--credentials", "operator")])
def test_what_has_nothing_to_close_is_said(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "shop.toml"
    file.write_text("version = 1\n")
    embedded = CoordinatorConfig(zookeeper="127.0.0.1:1/w", auth_file=Path("/credentials"), same_user=True)
    write_embedded(up_folder(file), embedded, tmp_path)
    for given, said in (
        ((), "it is not known which ZooKeeper"),
        (("-c", str(file)), "closed to every other user already"),
        (("-c", "nowhere"), "neither a configuration file nor a ZooKeeper"),
    ):
        code, _, err = run("zookeeper", *command, *given)
        assert (code, said in err, "next: " in err) == (2, True, True), err


def test_somebody_has_to_close_it(zookeeper: str) -> None:
    code, _, err = run("zookeeper", "close", "-c", zookeeper, "--yes")
    assert (code, "it is not known who closes it" in err) == (2, True)
