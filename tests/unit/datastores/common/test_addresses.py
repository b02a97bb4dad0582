"""URLs and password files that the database servers have alike, and what is advised when a log diverged."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.common.password_file import others_may_read
from datastores.common.url_parts import UrlParts, options_of
from datastores.mysql.history import incarnations
from datastores.mysql.log import dump_errors, scan
from datastores.postgres.history import proof
from datastores.rocksdb.log.places import diverged
from wormhole.host.password_file import read_password_file
from wormhole.model.errors import UsageError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.problems.catalogue import entries

# --- password file ---


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


# --- url parts: what the URLs of database servers have alike ---


def test_parts_are_decoded_and_what_is_left_open_is_empty() -> None:
    url = UrlParts.parse("db://a%20b:p%40ss@h.example:77/x?o=1#f", ("db",), "db://host")
    assert url == UrlParts("db", "a b", "p@ss", "h.example", 77, "/x", "o=1", "f")
    bare = UrlParts.parse("db://h", ("db",), "db://host")
    assert (bare.user, bare.password, bare.port) == ("", None, 0)
    assert "p@ss" not in repr(url)


@pytest.mark.parametrize("text", ["db://h:port", "other://h", "db:h", "DB:///"])
def test_what_is_no_such_url_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(ValueError, match="must be db://host"):
        UrlParts.parse(text, ("db",), "db://host")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("secret=1", "unknown option; known are a, cert, key"),
        ("a=/1&a=/2", "each option once"),
        ("a=", "each option once, with a value"),
        ("a=relative", "must give a as an absolute path"),
        ("cert=c", "cert and key together"),
    ],
)
def test_options_are_known_given_once_and_fit(query: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        options_of(query, ("a", "cert", "key"), ("a",), ("cert", "key"))
    assert "secret" not in str(refused.value)
    assert options_of("a=/x&cert=c&key=k", ("a", "cert", "key"), ("a",), ("cert", "key"))["a"] == "/x"


# --- next steps ---


START = Datamarker(LogPosition(1, 1, 0), "0", LogPosition(1, 1, 0))
COMMANDS = (
    "`wormholectl repair APP/SHARD`",
    "`wormholectl flows accept-loss APP/SHARD`",
    "`wormholectl markers set APP/SHARD PLACE`",
)


def in_order(text: str) -> bool:
    """Whether all commands are named, each before the next one."""
    places = [text.find(command) for command in COMMANDS]
    return places[0] >= 0 and places == sorted(places)


@pytest.mark.parametrize(
    "hint",
    [scan.ANEW, dump_errors._ANEW, incarnations._ACCEPT, proof.ANEW, diverged(START, "it was replaced").hint],
    ids=["mysql", "mysql dump", "mysql history", "postgres", "rocksdb"],
)
def test_a_flow_that_diverged_is_repaired_first(hint: str) -> None:
    assert in_order(hint), hint


def test_as_the_runbook_says() -> None:
    assert in_order(entries()["log-diverged"].do)
