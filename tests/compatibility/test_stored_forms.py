"""What 1d498d0d stored and sent: the present code reads each form to the same value, and writes it with the same
bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest
from pyarrow.fs import LocalFileSystem
from pydantic import BaseModel

from datastores.postgres.tables.unlogged_changes import UnloggedChange, UnloggedChanges
from publisher.stores.dead_letters.rules import letter_from_json, letter_to_json
from publisher.stores.markers.rules import flow_from_json, flow_to_json
from spark_replay.export.places import keep_places, load_places
from tests.compatibility.stored_forms import (
    CONTROL,
    EXPORTED,
    FLOW,
    LETTER,
    STORED,
    Form,
    all_forms,
    at,
    files_of,
    in_bytes,
    keep,
    moved_stream,
    parsed,
    sqlite_form,
    unpack,
)
from tests.unit.datastores.postgres.tables.test_unlogged_changes import Catalogue, look, row
from wormhole.config import application_from_json, config_to_json, dataset_from_json, parse_json, to_json
from wormhole.config.sinks import SinkTable
from wormhole.coordination.access_tokens import AccessToken
from wormhole.coordination.port import AttachPoint, FlowRecord
from wormhole.coordination.records import attach_from_json, attach_to_json, tokens_from_json, tokens_to_json
from wormhole.coordination.records import flow_from_json as record_from_json
from wormhole.coordination.records import flow_to_json as record_to_json
from wormhole.formats.spec import FormatSpec
from wormhole.host.state_file import FolderState
from wormhole.model.position import LastAck

FIXTURES: Final = Path(__file__).with_name("fixtures")
FORMS: Final = all_forms()
NO_SUBSCRIBER: Final = (b'"parked_by": "", ', b"")
MOVES: Final = (
    (
        b"    rewound INTEGER NOT NULL DEFAULT 0, move INTEGER NOT NULL DEFAULT 0,",
        b"    rewound INTEGER NOT NULL DEFAULT 0,",
    ),
    (b"',0,0);", b"',0);"),
    (b"}',1,0);", b"}',1);"),
    (b"user_version = 5", b"user_version = 4"),
)
ACKS: Final = (
    (b" DEFAULT 0, last_ack TEXT NOT NULL DEFAULT '',\n    PRIMARY KEY (", b" DEFAULT 0, PRIMARY KEY ("),
    (b",'');", b");"),
    (b",'0 1/7/90');", b");"),
    (b"user_version = 6", b"user_version = 5"),
)
ADDED: Final = {
    "stored/markers/dead-letter": (NO_SUBSCRIBER,),
    "stored/markers/sqlite": (NO_SUBSCRIBER, *ACKS, *MOVES),
    "stored_later/markers/sqlite": ACKS,
}
"""By fixture, what is written now, and what was written when it was made."""


def write_tables(folder: Path) -> None:
    """Looks at the catalogue of PostgreSQL."""
    changes, catalogue = UnloggedChanges(FolderState(folder)), Catalogue()
    look(changes, catalogue, row(20000), row(20001, "s.u"), row(20002, "s.gone"))
    look(changes, catalogue, row(20000, key=[2]), row(20001, "s.u", file=20009))


def read_tables(folder: Path) -> Any:
    changes = UnloggedChanges(FolderState(folder))
    found = dict(changes.of("server").changes)
    return found, look(changes, Catalogue(), row(20003, "s.gone"))


def write_places(folder: Path) -> None:
    with mock.patch("spark_replay.export.state._release", return_value="0.1.0"):
        text = keep_places(LocalFileSystem(), str(folder), EXPORTED)
    (folder / "commit").write_text(text)


def read_places(folder: Path) -> Any:
    return load_places(LocalFileSystem(), str(folder), (folder / "commit").read_text(), "it")


LATER: Final = [
    in_bytes(
        "markers/zookeeper",
        replace(STORED, control=replace(CONTROL, unlogged=("shop.größe", "shop.t"))),
        flow_to_json,
        lambda data: flow_from_json(FLOW, data, "a node"),
    ),
    sqlite_form("markers/sqlite", replace(STORED, move=3)),
    sqlite_form(
        "markers/sqlite-acked",
        replace(STORED, move=3, last_ack=LastAck(2, at(80).order)),
        LastAck(0, at(90).order),
    ),
    in_bytes(
        "markers/zookeeper-acked",
        replace(STORED, move=3, last_ack=LastAck(2, at(80).order)),
        flow_to_json,
        lambda data: flow_from_json(FLOW, data, "a node"),
    ),
    moved_stream("wire/stream"),
    moved_stream("wire/stream-acked", LastAck(3, at(80).order)),
    in_bytes(
        "markers/dead-letter",
        replace(LETTER, parked_by="a"),
        lambda letter: letter_to_json(letter).encode(),
        lambda data: letter_from_json(FLOW, data, "a node"),
    ),
    in_bytes(
        "zookeeper/dataset-shop",
        parsed().datasets["shop"].model_copy(update={"value_format": FormatSpec("json", ttl=True)}),
        lambda dataset: to_json(dataset).encode(),
        lambda data: dataset_from_json("shop", data.decode(), "a node"),
    ),
    in_bytes(
        "zookeeper/application-cache",
        parsed().applications["cache"].model_copy(update={"marker_interval": 0.01}),
        lambda application: to_json(application).encode(),
        lambda data: application_from_json("cache", data.decode(), "a node"),
    ),
    in_bytes(
        "zookeeper/application-dials",
        parsed().applications["cache"].model_copy(update={"connect": "publisher"}),
        lambda application: to_json(application).encode(),
        lambda data: application_from_json("cache", data.decode(), "a node"),
    ),
    in_bytes(
        "zookeeper/flow",
        FlowRecord("shop/main/db1@host1:42", "a", 3, "live", "5e5e"),
        record_to_json,
        lambda data: record_from_json(data, "a node"),
    ),
    in_bytes(
        "running/settings-listens",
        parsed().model_copy(
            update={
                "publisher": parsed().publisher.model_copy(
                    update={"attach_listen": "127.0.0.1:7490", "markers": "zookeeper"}
                )
            }
        ),
        lambda config: config_to_json(config).encode(),
        lambda data: parse_json(data.decode(), "it", folder=Path("/")),
    ),
    in_bytes(
        "running/settings",
        parsed().model_copy(
            update={
                "sinks": {
                    "lines": SinkTable.model_validate(
                        {"url": "jsonlines:-", "application": "cache", "rotate_size": "1MiB"}
                    )
                }
            }
        ),
        lambda config: config_to_json(config).encode(),
        lambda data: parse_json(data.decode(), "it", folder=Path("/")),
    ),
    in_bytes(
        "running/settings-tokens",
        parsed().model_copy(
            update={
                "publisher": parsed().publisher.model_copy(
                    update={"token_listen": "127.0.0.1:7491", "markers": "zookeeper"}
                )
            }
        ),
        lambda config: config_to_json(config).encode(),
        lambda data: parse_json(data.decode(), "it", folder=Path("/")),
    ),
    in_bytes(
        "zookeeper/attach",
        AttachPoint("db1", "main@db-1.internal", "db-1.internal:7490", "db-1.internal:7491"),
        attach_to_json,
        lambda data: attach_from_json("db1.main@db-1.internal", data, "a node"),
    ),
    in_bytes(
        "running/settings-advertises",
        parsed().model_copy(
            update={
                "publisher": parsed().publisher.model_copy(
                    update={"attach_advertise": "db-1.internal", "markers": "zookeeper"}
                )
            }
        ),
        lambda config: config_to_json(config).encode(),
        lambda data: parse_json(data.decode(), "it", folder=Path("/")),
    ),
    in_bytes(
        "zookeeper/tokens",
        (AccessToken("0a" * 32, 1_700_000_000.5, 1_800_000_000.5), AccessToken("0b" * 32, 1_700_000_001.5)),
        tokens_to_json,
        lambda data: tokens_from_json(data, "a node"),
    ),
    Form(
        "state/postgres-tables",
        (
            {"s.t": UnloggedChange(0x1200, 0x1100), "s.u": UnloggedChange(0x1200, 0x1100, files=True)},
            {"s.gone": UnloggedChange(0x1100, 0x1200)},
        ),
        write_tables,
        read_tables,
    ),
    Form("tables/export-places", EXPORTED, write_places, read_places),
]
"""Forms with what was added since."""
NOT_STORED: Final = {
    ("Assigned", "size"): "it is counted where it arrives",
    ("Datamarker", "shard"): "it is filled in where an application receives it",
    ("MonitorConfig", "sinks"): "a publisher's file has no sinks",
    ("SubscriberInfo", "process"): "a subscriber that dials is not registered",
    ("Run", "first_index"): "the segment begins with a transaction",
    ("Run", "indexes"): "they count up by one",
    ("Run", "schema_index"): "all updates have one schema",
    ("Run", "tx_source"): "all transactions have one source",
    ("Segment", "broken"): "such a segment is not recorded",
    ("Segment", "chunk"): "such a segment is not recorded",
}


@pytest.mark.parametrize(
    ("form", "folder"), [*((one, "stored") for one in FORMS), *((one, "stored_later") for one in LATER)], ids=str
)
def test_a_stored_form_is_read_and_written_as_before(form: Form, folder: str, tmp_path: Path) -> None:
    fixture = FIXTURES / folder / form.name
    assert form.read(unpack(fixture, tmp_path / "read")) == form.value
    written = tmp_path / "written"
    written.mkdir()
    form.write(written)
    data_of = files_of(written)
    for now, then in ADDED.get(f"{folder}/{form.name}", ()):
        data_of = {name: data.replace(now, then) for name, data in data_of.items()}
    found = {name: form.content(data) for name, data in data_of.items()}
    assert found == {name: form.content(data) for name, data in files_of(fixture).items()}


def optional_fields(value: Any) -> Iterator[tuple[str, str, bool]]:
    """Every field with a default that is in a value: its class, its name, and whether it has the default."""
    if isinstance(value, BaseModel):
        for name, model_field in type(value).model_fields.items():
            default, one = model_field.get_default(call_default_factory=True), getattr(value, name)
            if not model_field.is_required():
                yield type(value).__name__, name, one == default
            yield from optional_fields(one)
    elif is_dataclass(value):
        for field in fields(value):
            one = getattr(value, field.name)
            if field.init and (field.default is not MISSING or field.default_factory is not MISSING):
                default = field.default if field.default_factory is MISSING else field.default_factory()
                yield type(value).__name__, field.name, one == default
            yield from optional_fields(one)
    elif isinstance(value, Mapping):
        for one in (*value.keys(), *value.values()):
            yield from optional_fields(one)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for one in value:
            yield from optional_fields(one)


def test_every_field_of_what_is_stored_has_a_name_there() -> None:
    """Each field differs from its default in some form. So a field that is not stored is not read back."""
    set_in_a_form: dict[tuple[str, str], bool] = {}
    for kind, name, is_default in optional_fields([form.value for form in (*FORMS, *LATER)]):
        set_in_a_form[kind, name] = set_in_a_form.get((kind, name), False) or not is_default
    assert {key for key, is_set in set_in_a_form.items() if not is_set} == NOT_STORED.keys()


def test_the_documents_list_every_form() -> None:
    text = (FIXTURES.parents[2] / "docs/architecture.md").read_text()
    listed = text.partition("## What is stored")[2].partition("\n## ")[0]
    names = {form.name: (f"`{form.name}`", f"`{Path(form.name).name}`") for form in (*FORMS, *LATER)}
    assert [name for name, written in names.items() if not any(one in listed for one in written)] == []


if __name__ == "__main__":
    for one in LATER:
        if not (FIXTURES / "stored_later" / one.name).exists():
            keep(one, FIXTURES / "stored_later")
