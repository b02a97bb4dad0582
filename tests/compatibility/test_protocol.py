"""Every message of the release before has its fields today, under the same numbers and of the same types; names are
nobody's on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet

from wormhole.wire.v1 import admin_pb2, push_pb2, schema_pb2, update_pb2

Described = dict[str, DescriptorProto | EnumDescriptorProto]


def messages(
    prefix: str, given: Iterable[DescriptorProto]
) -> Iterator[tuple[str, DescriptorProto | EnumDescriptorProto]]:
    for one in given:
        name = f"{prefix}.{one.name}"
        yield name, one
        yield from messages(name, one.nested_type)
        for enum in one.enum_type:
            yield f"{name}.{enum.name}", enum


def described(files: Iterable[FileDescriptorProto]) -> Described:
    found: Described = {}
    for file in files:
        found |= messages(file.package, file.message_type)
        found |= {f"{file.package}.{one.name}": one for one in file.enum_type}
    return found


def calls(files: Iterable[FileDescriptorProto]) -> dict[str, tuple[str, str, bool, bool]]:
    return {
        f"/{file.package}.{service.name}/{method.name}": (
            method.input_type,
            method.output_type,
            method.client_streaming,
            method.server_streaming,
        )
        for file in files
        for service in file.service
        for method in service.method
    }


@pytest.fixture
def then(before: Path) -> FileDescriptorSet:
    return FileDescriptorSet.FromString((before / "protocol.binpb").read_bytes())


@pytest.fixture
def now() -> FileDescriptorSet:
    found = FileDescriptorSet()
    for module in (admin_pb2, push_pb2, schema_pb2, update_pb2):
        module.DESCRIPTOR.CopyToProto(found.file.add())
    return found


def test_every_field_of_before_is_there(then: FileDescriptorSet, now: FileDescriptorSet) -> None:
    present = described(now.file)
    for name, old in described(then.file).items():
        assert name in present
        new = present[name]
        if isinstance(old, EnumDescriptorProto):
            assert isinstance(new, EnumDescriptorProto)
            assert {one.number for one in old.value} <= {one.number for one in new.value}, name
            continue
        assert isinstance(new, DescriptorProto)
        fields = {(one.number, one.type, one.label, one.type_name, one.HasField("oneof_index")) for one in new.field}
        lacking = {
            (one.number, one.type, one.label, one.type_name, one.HasField("oneof_index")) for one in old.field
        } - fields
        assert not lacking, name


def test_every_call_of_before_is_there(then: FileDescriptorSet, now: FileDescriptorSet) -> None:
    assert calls(then.file).items() <= calls(now.file).items()
    assert "/wormhole.wire.v1.Subscriber/Push" in calls(then.file)
