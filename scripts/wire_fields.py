"""A field number of the wire, once given, is never given to anything else.

``proto/fields.txt`` remembers every field that ever was: one line ``message.field = number type``. ``make proto`` adds
lines and never removes one; ``make check`` compares them with the ``.proto`` files. A field that is gone must have its
number reserved.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2

from scripts.prepare import ROOT

__all__ = ["FIELDS", "problems", "read_descriptors", "remember"]

FIELDS = ROOT / "proto" / "fields.txt"

_Type = descriptor_pb2.FieldDescriptorProto


def read_descriptors() -> descriptor_pb2.FileDescriptorSet:
    """What protoc understands of ``proto/``. Raises `subprocess.CalledProcessError` when it refuses a file."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "all.bin"
        sources = sorted(str(path) for path in (ROOT / "proto").rglob("*.proto"))
        paths = [f"--proto_path={ROOT / 'proto'}", f"--descriptor_set_out={target}"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *paths, *sources], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())


def _messages(descriptors: descriptor_pb2.FileDescriptorSet) -> dict[str, descriptor_pb2.DescriptorProto]:
    found = {}

    def visit(prefix: str, message: descriptor_pb2.DescriptorProto) -> None:
        found[f"{prefix}.{message.name}"] = message
        for nested in message.nested_type:
            visit(f"{prefix}.{message.name}", nested)

    for file in descriptors.file:
        for message in file.message_type:
            visit(file.package, message)
    return found


def _line(message: str, field: descriptor_pb2.FieldDescriptorProto) -> str:
    kind = _Type.Type.Name(field.type).removeprefix("TYPE_").lower()
    repeated = "repeated " if field.label == _Type.LABEL_REPEATED else ""
    return f"{message}.{field.name} = {field.number} {repeated}{field.type_name.lstrip('.') or kind}"


def _lines(descriptors: descriptor_pb2.FileDescriptorSet) -> set[str]:
    return {_line(name, field) for name, message in _messages(descriptors).items() for field in message.field}


def problems(descriptors: descriptor_pb2.FileDescriptorSet, remembered: set[str]) -> list[str]:
    """What breaks the promise, one sentence each."""
    messages = _messages(descriptors)
    found = []
    for line in sorted(remembered - _lines(descriptors)):
        name, _, meaning = line.partition(" = ")
        message_name, _, field_name = name.rpartition(".")
        number = int(meaning.split()[0])
        message = messages.get(message_name)
        reserved = message is not None and any(span.start <= number < span.end for span in message.reserved_range)
        if message is not None and not reserved:
            found.append(
                f"{message_name}: {field_name} was number {number} ({meaning}); reserve the number and give new ones"
            )
    found += [f"{line}: not in proto/fields.txt; run make proto" for line in sorted(_lines(descriptors) - remembered)]
    return found


def remember(descriptors: descriptor_pb2.FileDescriptorSet) -> None:
    """Add the fields of today to the file. Raises `ValueError` where a number would be given a second time."""
    before = set(FIELDS.read_text().splitlines()) if FIELDS.exists() else set()
    broken = [text for text in problems(descriptors, before) if "run make proto" not in text]
    if broken:
        raise ValueError("\n".join(broken))
    FIELDS.write_text("\n".join(sorted(before | _lines(descriptors))) + "\n")
