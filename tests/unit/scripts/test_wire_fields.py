"""Field numbers are never reused."""

from __future__ import annotations

from google.protobuf import descriptor_pb2

from scripts import wire_fields

Field = descriptor_pb2.FieldDescriptorProto


def _with(*fields: tuple[str, int], reserved: int | None = None) -> descriptor_pb2.FileDescriptorSet:
    message = descriptor_pb2.DescriptorProto(name="M")
    for name, number in fields:
        message.field.add(name=name, number=number, type=Field.TYPE_UINT32, label=Field.LABEL_OPTIONAL)
    if reserved is not None:
        message.reserved_range.add(start=reserved, end=reserved + 1)
    return descriptor_pb2.FileDescriptorSet(
        file=[descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", message_type=[message])]
    )


def test_what_is_committed_keeps_the_promise() -> None:
    remembered = set(wire_fields.FIELDS.read_text().splitlines())
    assert wire_fields.problems(wire_fields.read_descriptors(), remembered) == []


def test_a_number_given_to_another_field_is_reported() -> None:
    (problem, *_) = wire_fields.problems(_with(("b", 1)), {"p.M.a = 1 uint32"})
    assert "p.M: a was number 1" in problem


def test_a_removed_field_must_be_reserved() -> None:
    remembered = {"p.M.a = 1 uint32", "p.M.b = 2 uint32"}
    assert wire_fields.problems(_with(("b", 2)), remembered)
    assert wire_fields.problems(_with(("b", 2), reserved=1), remembered) == []


def test_a_new_field_has_to_be_remembered() -> None:
    assert wire_fields.problems(_with(("a", 1), ("b", 2)), {"p.M.a = 1 uint32"}) == [
        "p.M.b = 2 uint32: not in proto/fields.txt; run make proto"
    ]
