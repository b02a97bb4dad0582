"""The settings of a sink of NATS, and the subjects of its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sinks.nats.kind import KIND
from sinks.nats.nkeys import read_user_key
from sinks.nats.settings import NatsSettings
from sinks.nats.subjects import Subjects, covers, pattern_of
from sinks.records import Record
from wormhole.model.errors import TargetRefused, UsageError

URL = "nats://nats.example.org"


def settings(**given: Any) -> NatsSettings:
    return NatsSettings.model_validate({"url": URL, **given})


def subject(template: str, table: str = "shop.orders", key: bytes = b"[7]") -> str:
    subjects = Subjects(template, stream="changes", dataset="shop", log="db1")
    return subjects.of(Record("1", "1", table, key, b"{}"))


def test_a_url_has_a_user_and_several_servers() -> None:
    read = settings(url="tls://me%40home@a.example.org:4223,[::1],c", password_file="/p")
    assert (read.user, read.encrypted) == ("me@home", True)
    assert read.servers == ["tls://a.example.org:4223", "tls://[::1]", "tls://c"]
    assert (settings().user, settings().servers) == (None, [URL])


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"url": "nats://"}, "must be nats://"),
        ({"url": "nats://a/stream"}, "must be nats://"),
        ({"url": "nats://a?x=1"}, "must be nats://"),
        ({"url": "nats://a,,b"}, "must be nats://"),
        ({"url": "nats://a b"}, "must be nats://"),
        ({"url": "nats://me@a"}, "needs password_file"),
        ({"password_file": "/p", "credentials_file": "/c"}, "exclude each other"),
        ({"stream": "a.b"}, "must be the name of a stream"),
        ({"subject": "changes.{table}.{op}"}, "must be letters"),
        ({"subject": "changes.{table!r}"}, "must be letters"),
        ({"subject": "changes.{table"}, "must be letters"),
        ({"subject": "changes.*"}, "must be letters"),
        ({"subject": "changes..{table}"}, "a dot between"),
        ({"subject": "{table}"}, "must not begin"),
        ({"ca_file": "/ca"}, "for tls://"),
        ({"url": "tls://a", "cert_file": "/cert"}, "belong together"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        settings(**given)


def test_the_stream_has_the_name_of_the_sink_unless_that_has_a_dot() -> None:
    with pytest.raises(UsageError, match="no dot") as refused:
        KIND.open("shop.changes", settings())
    assert refused.value.hint == 'add stream = "shop-changes"'


@pytest.mark.allow_blocking
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no seed"),
        (b"\xff secret", "no seed"),
        (b"SU" + b"A" * 56, "letter of its seed is wrong"),
        (None, "No such file"),
    ],
)
def test_a_file_without_credentials_is_refused(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "user.creds"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TargetRefused, match=why) as refused:
        read_user_key(path)
    assert (refused.value.code, "secret" in str(refused.value)) == ("login-refused", False)


@pytest.mark.parametrize(
    ("template", "table", "found"),
    [
        ("{stream}.{table}", "shop.orders", "changes.shop.orders"),
        ("{stream}.{dataset}.{log}.{table}", "orders", "changes.shop.db1.orders"),
        ("all", "shop.orders", "all"),
        ("a.{table}", "shop.or ders", "a.shop.or%20ders"),
        ("a.{table}", "a..>.*", "a.a.%.%3E.%2A"),
        ("a.{table}", "%.é", "a.%25.%C3%A9"),
        ("a.{table}", "", "a.%"),
        ("a.{table}", "{key}", "a.%7Bkey%7D"),
    ],
)
def test_a_table_is_tokens_of_a_subject(template: str, table: str, found: str) -> None:
    assert subject(template, table) == found


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (b"[7]", "a.7"),
        (b'["x.y",7]', "a.x%2Ey.7"),
        (b'[{"b64":"/w=="}]', "a.%7B%22b64%22%3A%20%22%2Fw%3D%3D%22%7D"),
        (b'{"id":7,"part":""}', "a.7.%"),
        (b"", "a.%"),
    ],
)
def test_a_key_is_a_token_for_each_column(key: bytes, found: str) -> None:
    assert subject("a.{key}", key=key) == found


def test_a_pattern_has_every_subject_of_a_form() -> None:
    for template in ("{stream}.{table}", "{stream}.x.{table}.{key}", "all.rows", "a.b-{dataset}.{table}"):
        assert covers(pattern_of(template, "changes"), subject(template))
    assert pattern_of("{stream}.x.{table}", "changes") == "changes.x.>"


@pytest.mark.parametrize(
    ("pattern", "has"),
    [("a.>", True), ("a.*", False), ("a.*.c", True), ("a.b.c", True), ("a.b.c.>", False), ("*.b", False), (">", True)],
)
def test_wildcards_are_those_of_the_server(pattern: str, has: bool) -> None:
    assert covers(pattern, "a.b.c") is has
