"""Files with credentials: made once, private whatever the umask, and never shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wormhole.config import CoordinatorConfig
from wormhole.coordination.credentials import make_credentials, read_credentials
from wormhole.coordination.kazoo_client import new_client
from wormhole.model.errors import ConfigError


def test_they_are_random_private_and_made_once(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = make_credentials(tmp_path / "one", "publisher")
    finally:
        os.umask(before)
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600
    assert make_credentials(tmp_path / "one", "somebody") == read_credentials(tmp_path / "one") == made
    other = make_credentials(tmp_path / "two", "publisher")
    assert other != made
    assert [text.partition(":")[0] for text in (made, other)] == ["publisher"] * 2
    assert min(len(text.partition(":")[2]) for text in (made, other)) >= 43  # 256 bits
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        make_credentials(tmp_path / "nowhere" / "file", "publisher")


@pytest.mark.parametrize("content", [None, b"", b"user", b":p", b"user:", b"a:b\nc:hunter2", b"\xff"])
def test_what_is_no_credentials_is_reported_without_showing_it(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "auth"
    if content is not None:
        path.write_bytes(content)
    for read in (read_credentials, lambda path: new_client(CoordinatorConfig(zookeeper="zk1:1", auth_file=path))):
        with pytest.raises(ConfigError, match=r"coordinator\.auth_file") as caught:
            read(path)
        assert caught.value.hint
        assert "hunter2" not in str(caught.value)
