"""docs/wire.md: its bytes are right and it leaves out no frame."""

from __future__ import annotations

import re
from pathlib import Path

from subscriber_sdk.testing import body_of, update
from wormhole.model.schema import Column, Schema
from wormhole.wire.v1 import push_pb2

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()


def bytes_after(name: str) -> bytes:
    """The bytes of a worked example: groups of hex digits from ``name`` on, comments and references left out."""
    _, _, rest = PAGE.partition(f"\n{name} ")
    found = []
    for line in f"{' ' * len(name)} {rest}".splitlines():
        if not line.startswith("   "):
            break
        code = re.split(r"\s{3,}(?=\S*[a-zA-Z]{3})", line.strip())[0]
        found += re.findall(r"\b[0-9a-f]{2}\b", re.sub(r"<.*?>", "", code))
    return bytes.fromhex("".join(found))


def test_the_worked_example_of_a_schema() -> None:
    schema = Schema("users", (Column("id", "int"),), (Column("name", "text"),))
    assert bytes_after("canonical") == schema.canonical
    assert f"id          {schema.id:#018x}" in PAGE


def test_the_worked_example_of_a_body() -> None:
    change = update("users", key=7, before={"name": "ada"}, after={"name": "Ada"})
    row = bytes_after("Update")
    assert row == change.row
    body = bytes_after("BatchBody")
    assert body[:2] + row + body[2:] == body_of([change], source="db1", number=42)


def test_every_frame_is_described() -> None:
    for message in (push_pb2.PublisherFrame, push_pb2.SubscriberFrame):
        for field in message.DESCRIPTOR.fields:
            assert field.message_type is not None
            assert f"\n- `{field.message_type.name}`: " in PAGE, field.name


def test_every_reason_is_described() -> None:
    for message in (push_pb2.Goodbye, push_pb2.Failed):
        for value in message.DESCRIPTOR.enum_types_by_name["Reason"].values:
            assert value.number == 0 or value.name in PAGE, value.name
