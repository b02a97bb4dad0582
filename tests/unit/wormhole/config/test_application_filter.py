from __future__ import annotations

from pathlib import Path

import pytest

from wormhole.config import ApplicationConfig, application_from_json, to_json
from wormhole.config.application_filter import application_filter, read_mask_key
from wormhole.filters import Filter, MaskKey
from wormhole.model.errors import ConfigError

SECRET = b"0123456789abcdef0123456789abcdef"


def test_filter_columns_and_mask_of_an_application_are_stored_and_read(tmp_path: Path) -> None:
    config = ApplicationConfig(
        name="app", dataset="shop", start="latest", columns=("name", "email"), mask={"email": "hash"}, where="a == 1"
    )
    assert application_from_json("app", to_json(config), "/node") == config
    found, plain = application_filter(config), Filter.parse("a == 1")
    assert (found.text, found.projection.columns) == (plain.text, ("name", "email"))
    assert found.projection.hashes
    assert found.hash != plain.hash
    assert application_filter(config, key=MaskKey(SECRET)).hash == found.hash, "who has no key compares hashes too"


def test_a_key_is_what_its_file_holds_without_the_line_end(tmp_path: Path) -> None:
    path = tmp_path / "mask.key"
    for data in (SECRET, SECRET + b"\n", SECRET + b"\r\n"):
        path.write_bytes(data)
        assert read_mask_key(path).check == MaskKey(SECRET).check


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, r"mask\.key cannot be read: No such file"),
        (b"", r"mask\.key has 0 bytes, at least 32 are needed"),
        (b"secret password\n", r"mask\.key has 15 bytes"),
        (b"s" * 5000, r"mask\.key has more than 4096 bytes"),
    ],
)
def test_a_file_that_is_no_key_is_refused_without_its_text(tmp_path: Path, data: bytes | None, problem: str) -> None:
    path = tmp_path / "mask.key"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigError, match=problem) as raised:
        read_mask_key(path)
    assert raised.value.hint
    assert "secret" not in str(raised.value).replace("secret there", "")


def test_a_hash_needs_a_file() -> None:
    with pytest.raises(ConfigError, match=r"publisher\.mask_key_file is not set") as raised:
        read_mask_key(None)
    assert "openssl rand -hex 32" in (raised.value.hint or "")
