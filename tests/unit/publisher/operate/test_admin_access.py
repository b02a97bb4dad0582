"""Who may change things: the token of the host, and certificates that are listed."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import grpc
import pytest

from publisher.flows.refused_error import RefusedError
from publisher.operate.admin_access import OperatorAccess, host_token
from wormhole.host.local_admin import token_path
from wormhole.model.errors import ConfigError

TOKEN = "ab" * 32


def refusal(authorization: list[str], names: list[str] | None, *, admins: tuple[str, ...] = ()) -> grpc.StatusCode:
    with pytest.raises(RefusedError) as caught:
        OperatorAccess(TOKEN, admins).check(authorization, names)
    assert TOKEN not in str(caught.value)
    return caught.value.status


def test_a_token_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    state = tmp_path / "state"
    token = host_token(state)
    assert len(token) == 64
    assert host_token(state) == token
    assert stat.S_IMODE(token_path(state).stat().st_mode) == 0o600
    assert [path.name for path in state.iterdir()] == ["admin.token"]


def test_publishers_that_start_together_have_the_same_one(tmp_path: Path) -> None:
    tokens: list[str] = []
    go = threading.Barrier(8)

    def start() -> None:
        go.wait()
        tokens.append(host_token(tmp_path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 8
    assert set(tokens) == {host_token(tmp_path)}


def test_one_that_others_can_read_is_refused(tmp_path: Path) -> None:
    host_token(tmp_path)
    token_path(tmp_path).chmod(0o640)
    with pytest.raises(ConfigError, match=r"can be read by other users \(mode 640\)") as caught:
        host_token(tmp_path)
    assert "remove the file" in str(caught.value.hint)


@pytest.mark.parametrize("content", ["", "short\n", "G" * 64, "ü" * 64])
def test_what_is_no_token_is_refused(tmp_path: Path, content: str) -> None:
    path = token_path(tmp_path)
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="holds no token"):
        host_token(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made or read") as caught:
        host_token(tmp_path / "file")
    assert "state_dir" in str(caught.value.hint)


def test_the_hosts_token_permits_with_and_without_tls() -> None:
    access = OperatorAccess(TOKEN)
    assert access.check([f"Bearer {TOKEN}"], None) == ""
    assert access.check([f"Bearer {TOKEN}"], ["app-1"]) == ""


@pytest.mark.parametrize(
    "given", ["", "Bearer ", f"bearer {TOKEN}", TOKEN, f"Bearer {TOKEN} ", f"Bearer {TOKEN[:-1]}c", "Bearer ü"]
)
def test_any_other_word_is_refused(given: str) -> None:
    assert refusal([given], None) is grpc.StatusCode.UNAUTHENTICATED
    assert refusal([given], ["maria"], admins=("maria",)) is grpc.StatusCode.UNAUTHENTICATED


def test_two_words_are_refused() -> None:
    assert refusal([f"Bearer {TOKEN}", "Bearer x"], None) is grpc.StatusCode.UNAUTHENTICATED


def test_a_certificate_permits_when_it_is_listed() -> None:
    assert OperatorAccess(TOKEN, ("maria", "ops")).check([], ["localhost", "ops"]) == "ops"
    assert refusal([], None, admins=("maria",)) is grpc.StatusCode.UNAUTHENTICATED
    assert refusal([], ["app-1", "localhost"], admins=("maria",)) is grpc.StatusCode.PERMISSION_DENIED
    assert refusal([], [], admins=("",)) is grpc.StatusCode.PERMISSION_DENIED
    assert refusal([], ["localhost"]) is grpc.StatusCode.PERMISSION_DENIED
