"""Which sinks a monitor runs, and what needs a restart of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.desired_sinks import DesiredSink, desired_sinks
from monitor.state import SinkKey
from wormhole.config import parse
from wormhole.config.one_log import digest
from wormhole.model.errors import ConfigError

FILE = Path("/etc/wormhole/shop.toml")
TEXT = """version = 1
[coordinator]
static = true
[monitor]
sinks = ["lines"]
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///store"
[applications.search]
dataset = "shop"
start = "latest"
[sinks.lines]
url = "jsonlines:///lines"
application = "search"
[sinks.other]
url = "jsonlines:///other"
"""


def wanted(text: str = TEXT, coordinator: str = "") -> DesiredSink:
    (found,) = desired_sinks(parse(text, str(FILE), folder=FILE.parent), FILE, coordinator).items()
    assert found[0] == SinkKey("lines")
    return found[1]


def test_only_the_sinks_that_it_names_run() -> None:
    found = wanted()
    assert (found.config, found.coordinator) == (FILE, str(FILE))
    assert (found.url, found.application) == ("jsonlines:///lines", "search")
    assert wanted(coordinator="/data/coordinator.json").coordinator == "/data/coordinator.json"


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [
        ('"jsonlines:///lines"', '"jsonlines:///more"', True),
        ('application = "search"', 'application = "search"\nrotate_size = "1MiB"', True),
        ('start = "latest"', 'start = "latest"\nmarker_interval = "10ms"', True),
        ('"jsonlines:///other"', '"jsonlines:///more"', False),
        ('"rocksdb:///store"', '"rocksdb:///others"', False),
    ],
)
def test_what_a_sink_reads_when_it_starts_needs_a_restart(old: str, new: str, again: bool) -> None:
    assert old in TEXT
    assert (wanted(TEXT.replace(old, new)).digest != wanted().digest) is again


def test_a_sink_is_nothing_to_a_publisher() -> None:
    one, other = (parse(text, str(FILE), folder=FILE.parent) for text in (TEXT, TEXT.replace("///lines", "///more")))
    assert digest(one, "shop", "main", "db1") == digest(other, "shop", "main", "db1")


def test_a_name_without_a_table_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"monitor\.sinks .*\[sinks\.line\].*\[config-invalid\]"):
        parse(TEXT.replace('["lines"]', '["line"]'), str(FILE), folder=FILE.parent)
