"""A protobuf message that no generated code knows, as a store's owner would declare it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

ORDER_MESSAGE: Final = "shop.v1.Order"
_Field = descriptor_pb2.FieldDescriptorProto


def descriptor_set(without_imports: bool = False) -> descriptor_pb2.FileDescriptorSet:
    """Two files, one of which imports the other."""
    people = descriptor_pb2.FileDescriptorProto(name="people.proto", package="shop.v1", syntax="proto3")
    customer = people.message_type.add(name="Customer")
    customer.field.add(name="name", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)

    orders = descriptor_pb2.FileDescriptorProto(
        name="orders.proto", package="shop.v1", syntax="proto3", dependency=["people.proto"]
    )
    status = orders.enum_type.add(name="Status")
    status.value.add(name="OPEN", number=0)
    status.value.add(name="PAID", number=1)
    message = orders.message_type.add(name="Order")
    one, many = _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED
    message.field.add(name="id", number=1, type=_Field.TYPE_INT64, label=one)
    message.field.add(name="status", number=2, type=_Field.TYPE_ENUM, label=one, type_name=".shop.v1.Status")
    message.field.add(name="note", number=3, type=_Field.TYPE_STRING, label=one, proto3_optional=True, oneof_index=0)
    message.oneof_decl.add(name="_note")
    message.field.add(name="customer", number=4, type=_Field.TYPE_MESSAGE, label=one, type_name=".shop.v1.Customer")
    message.field.add(name="lines", number=5, type=_Field.TYPE_INT32, label=many)
    for number, (name, key, value, type_name) in enumerate(
        (
            ("totals", _Field.TYPE_STRING, _Field.TYPE_INT64, ""),
            ("by", _Field.TYPE_STRING, _Field.TYPE_MESSAGE, ".shop.v1.Customer"),
            ("numbered", _Field.TYPE_INT32, _Field.TYPE_INT64, ""),
        ),
        6,
    ):
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=key, label=one)
        found = entry.field.add(name="value", number=2, type=value, label=one)
        if type_name:
            found.type_name = type_name
        message.field.add(
            name=name, number=number, type=_Field.TYPE_MESSAGE, label=many, type_name=f".shop.v1.Order.{entry.name}"
        )
    return descriptor_pb2.FileDescriptorSet(file=[orders] if without_imports else [people, orders])


def write_descriptor_set(path: Path) -> None:
    """The file that ``protoc --include_imports --descriptor_set_out`` would write."""
    path.write_bytes(descriptor_set().SerializeToString())


def order(**fields: Any) -> bytes:
    """An encoded ``Order``."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_set().file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(ORDER_MESSAGE))
    return json_format.ParseDict(fields, kind()).SerializeToString()
