"""Keys of rows, and the settings of a sink of Redis."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest

from sinks.redis.keys import Keys, NoKey, pattern_of, types_of, values_of
from sinks.redis.settings import RedisSettings
from subscriber_sdk import UNAVAILABLE

PLACE = "db1.0of4", "a:b"
GENERAL = Keys("{table}:{key}", {})


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ((7,), b"7"),
        ((-7, "é"), "-7:é".encode()),
        (("a:b", "%"), b"a%3Ab:%25"),
        ((b"\xff\0",), b"\xff\0"),
        ((True, False), b"true:false"),
        ((0.0,), b"0.0"),
        ((-0.0,), b"0.0"),
        ((Decimal("12.50"),), b"12.5"),
        ((Decimal("1E+3"),), b"1000"),
        ((Decimal("-0.0"),), b"0"),
        ((Decimal("NaN"),), b"NaN"),
    ],
)
def test_the_key_of_a_row(values: Any, key: bytes) -> None:
    assert GENERAL.key(*PLACE, values) == b"a%3Ab:" + key
    back = values_of(key, types_of(values))
    assert [type(value) for value in back] == [type(value) for value in values]
    assert repr(back) == repr(values) or back == values


def test_two_rows_never_share_a_key() -> None:
    texts = ["", ":", "%", "%3A", "a", "a:", ":a", "%25", "::"]
    keys = [(a, b) for a in texts for b in texts]
    for first, second in combinations(keys, 2):
        assert GENERAL.key(*PLACE, first) != GENERAL.key(*PLACE, second)


@pytest.mark.parametrize("values", [(), (None,), (UNAVAILABLE,), ({b"a": b"b"},)])
def test_what_no_key_can_be_made_of(values: Any) -> None:
    with pytest.raises(NoKey, match="a:b"):
        GENERAL.key(*PLACE, values)


@pytest.mark.parametrize(
    ("template", "table"),
    [("{table}:{key}", "wormhole"), ("{log}:{key}", "t"), ("w{key}", "t"), ("wo{table}:{key}", "rmhole")],
)
def test_a_table_has_no_keys_among_those_of_the_sink(template: str, table: str) -> None:
    """TRUNCATE removes every key that begins as those of the table."""
    with pytest.raises(NoKey, match=f"keys of {table} could be those of the sink") as refused:
        Keys(template, {}).key("wormhole", table, (7,))
    assert refused.value.hint is not None
    assert f'keys = {{ "{table}" = "rows:{{key}}" }}' in refused.value.hint
    assert Keys(template, {table: "rows:{key}"}).key("wormhole", table, (7,)) == b"rows:7"


def test_a_template_of_one_table_and_of_its_log() -> None:
    keys = Keys("{log}/{table}:{key}", {"users": "user:{key}"})
    assert keys.key(*PLACE, (7,)) == b"db1/a%3Ab:7"
    assert keys.prefix("db1.0of4", "users") == b"user:"
    assert pattern_of(b"a*[b]?\\") == b"a\\*\\[b\\]\\?\\\\*"


NO_TEMPLATES = ["{key}", "a", "{key}:a", "a{key}{key}", "a{row}{key}", "a{0}{key}", "a{key", "a{key!r}", "{{key}"]
NO_TEMPLATES += ["{table:>9}{key}", "wormhole:{key}", "a{table.x}{key}"]


@pytest.mark.parametrize("template", NO_TEMPLATES)
def test_what_is_no_template(template: str) -> None:
    with pytest.raises(ValueError, match="must"):
        RedisSettings.model_validate({"url": "redis://host", "key": template})
    with pytest.raises(ValueError, match="must"):
        RedisSettings.model_validate({"url": "redis://host", "keys": {"a": template}})


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("redis://host", ("host", 6379, None, 0, False)),
        ("rediss://sink%40a@host:1/7", ("host", 1, "sink@a", 7, True)),
        ("valkey://[::1]:6380/", ("::1", 6380, None, 0, False)),
        ("valkeys://host", ("host", 6379, None, 0, True)),
    ],
)
def test_the_parts_of_a_url(url: str, parts: tuple[Any, ...]) -> None:
    settings = RedisSettings.model_validate({"url": url, "password_file": "p"})
    assert (settings.host, settings.port, settings.user, settings.database, settings.tls) == parts


@pytest.mark.parametrize(
    "settings",
    [
        *({"url": f"redis://{rest}"} for rest in ("", "host:x", "host:0", "host/a", "host/-1", "host?x=1", "host#a")),
        {"url": "redis://sink@host"},
        {"url": "redis://host", "tls_ca": "/ca.pem"},
        {"url": "rediss://host", "tls_cert": "/cert.pem"},
    ],
)
def test_settings_that_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"must be redis://|rediss://|belong together|needs password_file"):
        RedisSettings.model_validate(settings)
