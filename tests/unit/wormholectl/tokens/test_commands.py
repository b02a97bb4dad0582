"""``wormholectl tokens``: what is made, shown and revoked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_schema import check
from tests.support.command_line import run
from wormhole.coordination.access_tokens import find
from wormhole.coordination.host_files import HostFiles


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(
        "version = 1\n[coordinator]\nstatic = true\n[publisher]\nstate_dir = 'state'\n"
        "[datasets.shop.copies.main.logs.db1]\nsource = 'rocksdb:///store'\n"
        "[applications.cache]\ndataset = 'shop'\nstart = 'latest'\nconnect = 'publisher'\n"
    )
    return path


def tokens(file: Path, *arguments: str) -> tuple[int, str, str]:
    return run("tokens", *arguments, "-c", str(file))


def asked(file: Path, *arguments: str) -> dict[str, object]:
    code, out, _ = tokens(file, *arguments, "--json")
    assert code == 0
    found: dict[str, object] = check(f"tokens-{arguments[0]}", out)
    return found


def test_a_token_is_shown_once_and_stored_as_its_hash(file: Path) -> None:
    code, out, err = tokens(file, "create", "cache", "--expires", "90d")
    assert code == 0
    text = out.splitlines()[0]
    stored = HostFiles(file.parent / "state").tokens("cache")
    token = find(stored, text)
    assert token is not None
    assert token.expires - token.created == 90 * 86400.0
    kept = [path.read_text() for path in (file.parent / "state").rglob("*") if path.is_file()]
    assert kept
    assert all(text not in content for content in kept)
    code, out, err = tokens(file, "list", "cache")
    assert code == 0
    assert token.id in out
    assert text not in out + err


def test_two_are_valid_at_a_time(file: Path) -> None:
    first, second = asked(file, "create", "cache"), asked(file, "create", "cache")
    assert first["expires"] is None
    assert "too-many-tokens" in tokens(file, "create", "cache")[2]
    asked(file, "revoke", "cache", str(first["id"]), "--yes")
    third = asked(file, "create", "cache")
    listed = asked(file, "list", "cache")["tokens"]
    assert isinstance(listed, list)
    assert [one["id"] for one in listed] == [second["id"], third["id"]]


def test_one_that_expired_makes_room(file: Path) -> None:
    for _ in range(3):
        asked(file, "create", "cache", "--expires", "0s")
    listed = asked(file, "list", "cache")["tokens"]
    assert isinstance(listed, list)
    assert [one["valid"] for one in listed] == [False]


def test_what_is_wrong_is_named(file: Path) -> None:
    assert "application-unknown" in tokens(file, "create", "none")[2]
    assert "wrong-request" in tokens(file, "create", "cache", "--expires", "soon")[2]
    assert "token-refused" in tokens(file, "revoke", "cache", "00000000", "--yes")[2]
    made = asked(file, "create", "cache")
    assert "needs-confirmation" in tokens(file, "revoke", "cache", str(made["id"]))[2]
    assert asked(file, "revoke", "cache", str(made["id"]), "--yes")["notes"]


def test_those_of_an_application_that_was_removed_are_shown_and_revoked(file: Path) -> None:
    made = asked(file, "create", "cache")
    file.write_text(file.read_text().replace("[applications.cache]", "[applications.other]"))
    kept = asked(file, "create", "other")
    listed = asked(file, "list")["tokens"]
    assert isinstance(listed, list)
    found = [(one["application"], one["id"], one["configured"]) for one in listed]
    assert found == [("cache", made["id"], False), ("other", kept["id"], True)]
    assert "application-unknown" in tokens(file, "create", "cache")[2]
    asked(file, "revoke", "cache", str(made["id"]), "--yes")
    assert "application-unknown" in tokens(file, "list", "cache")[2]
    listed = asked(file, "list")["tokens"]
    assert isinstance(listed, list)
    assert [one["application"] for one in listed] == ["other"]
