from __future__ import annotations

from pathlib import Path

import pytest

from datastores.common.password_file import others_may_read, read_password_file
from wormhole.model.errors import UsageError


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"top\nsecret\n", "more than one line"),
        (b"secret\0", "more than one line"),
        (b"\xffsecret", "not UTF-8"),
        (b"secret" * 20_000, "more than one line"),
    ],
)
def test_what_is_no_password_file(data: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(data)
    with pytest.raises(UsageError, match=complaint) as caught:
        read_password_file(tmp_path / "p")
    assert "secret" not in str(caught.value)
    with pytest.raises(UsageError, match=r"cannot be read.*check the path and its permissions"):
        read_password_file(tmp_path / "none")


def test_a_password_is_the_whole_line(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(" pässword \r\n".encode())
    assert read_password_file(tmp_path / "p") == " pässword "


@pytest.mark.parametrize(("mode", "others"), [(0o600, False), (0o640, False), (0o644, True)])
def test_who_may_read_a_password_file(mode: int, others: bool, tmp_path: Path) -> None:
    (tmp_path / "p").write_text("secret")
    (tmp_path / "p").chmod(mode)
    assert others_may_read(tmp_path / "p") == others
