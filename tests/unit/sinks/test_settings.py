"""The tables ``[sinks.NAME]`` of a configuration, checked by their kinds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from sinks.envelopes.settings import HeldRecordSettings, record_subscriber
from sinks.port import SinkSettings
from sinks.records import Record, RecordWriter
from sinks.settings import configured_sink, configured_sinks, only_sink
from subscriber_sdk.testing import Kit, update
from tests.support.command_line import run
from wormhole.config import parse
from wormhole.config.check import check_config
from wormhole.config.model import Config
from wormhole.model.errors import ConfigError, TargetRefused, UsageError

FILE = Path("/etc/wormhole/shop.toml")
LINES = '[sinks.lines]\nurl = "jsonlines:///var/lib/lines"\n'


def read(text: str) -> Config:
    return parse(f"version = 1\n{text}", str(FILE), folder=FILE.parent)


def test_a_sink_receives_the_application_of_its_name_or_another_one() -> None:
    sinks = configured_sinks(read(LINES + '[sinks.out]\nurl = "jsonlines:-"\napplication = "search"\n'), FILE)
    assert {name: sink.application for name, sink in sinks.items()} == {"lines": "lines", "out": "search"}


def test_paths_begin_at_the_folder_of_the_file() -> None:
    sink = configured_sink(read(f'{LINES}hold_folder = "held"'), FILE, "lines")
    assert sink.settings.model_dump()["hold_folder"] == FILE.parent / "held"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[sinks.a]\nurl = "jsonlines:///a"\nrotate_sise = "1MiB"', "rotate_size"),
        ('[sinks.a]\nurl = "jsonlines:///a"\nenvelope = "maxwel"', "sinks.a.envelope"),
        ('[sinks.a]\nurl = "jsonlines://user:secret@host/a"', "password_file"),
        ('[sinks.a]\nurl = "postgresql://user@host/a?sslmode=disable&password=secret"', "password_file"),
        ('[sinks.a]\nurl = "folder"', "must be a URL"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(text: str, found: str) -> None:
    with pytest.raises(ConfigError, match=found) as error:
        configured_sinks(read(text), FILE)
    assert "secret" not in str(error.value)


def test_a_kind_that_no_package_has() -> None:
    text = '[sinks.a]\nurl = "fax://desk"\n'
    with pytest.raises(UsageError, match="no installed package") as error:
        configured_sink(read(text), FILE, "a")
    assert (error.value.code, "jsonlines" in error.value.message) == ("extra-missing", True)
    with pytest.raises(ConfigError, match=r"2 problems(.|\n)*sinks.a.url(.|\n)*sinks.b.size"):
        configured_sinks(read(f'{text}[sinks.b]\nurl = "jsonlines:///a"\nsize = 1\n'), FILE)


def test_a_sink_needs_its_application_where_the_file_has_all() -> None:
    text = '[coordinator]\nstatic = true\n[sinks.lines]\nurl = "jsonlines:///a"\n'
    with pytest.raises(ConfigError, match=r"sinks\.lines: .*\[applications\.lines\].*\[config-invalid\]"):
        configured_sinks(read(text), FILE)
    assert configured_sinks(read(text.replace("static = true", 'zookeeper = "127.0.0.1:2181"')), FILE)


def test_a_check_of_the_file_checks_its_sinks(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(f"version = 1\n{LINES}")
    assert run("config", "check", str(file))[1].endswith("Applications: none. Sinks: lines.\n")
    assert json.loads(run("config", "check", str(file), "--json")[1])["sinks"] == ["lines"]
    file.write_text('version = 1\n[sinks.a]\nurl = "jsonlines:///a"\nsize = 1\n')
    with pytest.raises(ConfigError, match=r"sinks\.a\.size: unknown key"):
        check_config(file, 0.0)


class Documents(RecordWriter):
    """Keeps what it would write."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        self.values += [record.value for record in records]


@pytest.mark.parametrize(
    ("envelope", "path", "found"),
    [
        ("wormhole", ["table"], "public.orders"),
        ("debezium", ["source", "db"], "shop"),
        ("maxwell", ["database"], "public"),
    ],
)
def test_every_envelope_can_be_chosen(wormhole_kit: Kit, envelope: str, path: list[str], found: str) -> None:
    text = f'{LINES}envelope = "{envelope}"\nsource_database = "shop"'
    settings = configured_sink(read(text), FILE, "lines").settings
    assert isinstance(settings, HeldRecordSettings)
    documents = Documents()
    flow = wormhole_kit.attach(record_subscriber(settings, documents))
    flow.commit(update("public.orders", key=7, after={"id": 7}))
    (document,) = (json.loads(value or b"") for value in documents.values)
    for name in path:
        document = document[name]
    assert document == found


def test_the_only_sink_needs_no_name() -> None:
    assert only_sink(read(LINES), FILE) == "lines"
    for text in ("", LINES + LINES.replace("sinks.lines", "sinks.more")):
        with pytest.raises(UsageError):
            only_sink(read(text), FILE)
    with pytest.raises(UsageError, match='did you mean "lines"'):
        configured_sink(read(LINES), FILE, "line")


@pytest.mark.allow_blocking
def test_a_password_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    settings = SinkSettings(url="fax://desk", password_file=file)
    file.write_bytes("open ü \n".encode())
    assert settings.read_password() == "open ü "
    assert SinkSettings(url="fax://desk").read_password() is None
    file.write_bytes(b"secret\nsecret")
    with pytest.raises(TargetRefused, match="more than one line") as refused:
        settings.read_password()
    assert (refused.value.code, "secret" in str(refused.value)) == ("login-refused", False)
