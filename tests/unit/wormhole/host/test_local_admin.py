from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from wormhole.host.local_admin import LocalAdmin, socket_target, token_path
from wormhole.model.errors import UsageError

TOKEN = "ab" * 32
NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / ("long" * 30) / "shop" / "main" / "db1"  # longer than the path of a socket may be
    found.mkdir(parents=True)
    found.chmod(0o700)
    token = token_path(state(found))
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    return found


@pytest.fixture
def listening(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_PATH)
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(f"/proc/self/fd/{handle}/admin.sock")
        server.listen()
        yield
    os.close(handle)


def state(folder: Path) -> Path:
    return folder.parents[2]


def refusal(folder: Path, *names: str) -> str:
    with (
        pytest.raises(UsageError) as refused,
        LocalAdmin(state(folder), *(names or ("shop", "main", "db1"))).dial(),
    ):
        pass
    return refused.value.message


@pytest.mark.usefixtures("listening")
def test_the_owner_of_the_token_listens(folder: Path) -> None:
    with LocalAdmin(state(folder), "shop", "main", "db1").dial() as (target, token):
        assert token == TOKEN
        with closing(socket.socket(socket.AF_UNIX)) as client:
            client.connect(target.removeprefix("unix:"))


def test_no_process_listens(folder: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as left_behind:
        handle = os.open(folder, os.O_PATH)
        left_behind.bind(socket_target(handle).removeprefix("unix:"))
        os.close(handle)
    assert "no process answers at" in refusal(folder)


def test_a_publisher_of_an_earlier_release_has_no_socket(folder: Path) -> None:
    assert "or it is of an earlier release, which has to be replaced first" in refusal(folder)


@pytest.mark.usefixtures("listening")
def test_what_could_be_another_users(folder: Path) -> None:
    folder.chmod(0o722)
    assert "is not only the token's owner's" in refusal(folder)
    folder.chmod(0o700)
    token_path(state(folder)).chmod(0o640)
    assert "can be read by other users" in refusal(folder)


@pytest.mark.usefixtures("listening")
def test_names_lead_nowhere_else(folder: Path) -> None:
    for names in (("..", "main", "db1"), ("shop", "/etc", "db1"), ("shop", "", "db1"), ("shop", "main", "a\0")):
        assert "names no log" in refusal(folder, *names)


def test_the_token_is_a_file(folder: Path) -> None:
    token = token_path(state(folder))
    token.rename(token.with_name("other"))
    token.symlink_to("other")
    assert "cannot be read: Too many levels of symbolic links" in refusal(folder)
    token.unlink()
    os.mkfifo(token, 0o600)
    assert "holds no token" in refusal(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen as somebody else")
def test_another_user_listens(folder: Path) -> None:
    """Somebody else's process at the right place: the token is not even shown to the caller."""
    code = (
        "import os, socket, sys; f = os.open(sys.argv[1], os.O_PATH); s = socket.socket(socket.AF_UNIX);"
        "s.bind(f'/proc/self/fd/{f}/admin.sock'); os.setuid(int(sys.argv[2])); s.listen(); print(flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(NOBODY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as stranger:
        assert stranger.stdout is not None
        stranger.stdout.readline()
        assert f"listens user {NOBODY}, and the token is user 0's" in refusal(folder)
        stranger.communicate()
