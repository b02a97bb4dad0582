"""Makes decoders of declared formats: reads descriptor sets and imports the libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wormhole.formats.decoders import Decoder, JsonDecoder, MsgpackDecoder, ProtobufDecoder, TtlDecoder
from wormhole.formats.spec import FormatSpec
from wormhole.formats.table import ValueFormats
from wormhole.model.errors import ConfigError

__all__ = ["open_formats"]


def open_formats(default: FormatSpec | None, tables: Mapping[str, FormatSpec]) -> ValueFormats:
    """The decoders of a dataset.

    Raises :class:`~wormhole.model.errors.ConfigError` for a missing descriptor set or library.
    """
    made: dict[FormatSpec, Decoder | None] = {}
    for spec in (*(() if default is None else (default,)), *tables.values()):
        if spec not in made:
            made[spec] = _open(spec)
    return ValueFormats(None if default is None else made[default], {name: made[spec] for name, spec in tables.items()})


def _open(spec: FormatSpec) -> Decoder | None:
    if spec.ttl:
        inner = _open(replace(spec, ttl=False))
        return None if inner is None else TtlDecoder(inner)
    match spec.kind:
        case "bytes":
            return None
        case "json":
            return JsonDecoder()
        case "msgpack":
            try:
                return MsgpackDecoder()
            except ImportError as error:
                raise ConfigError(
                    "value_format: values in MessagePack need the package msgpack",
                    hint="pip install 'wormhole-pubsub[publisher]'",
                    code="extra-missing",
                ) from error
        case "protobuf":
            return _open_protobuf(spec)


def _open_protobuf(spec: FormatSpec) -> ProtobufDecoder:
    # Only few processes need them, and importing them takes long.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError as ProtobufDecodeError

    path = spec.descriptor_set
    assert path is not None
    where = f"value_format: the descriptor set {path}"
    how = "write it anew with protoc --include_imports --descriptor_set_out"
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}", hint=how) from error
    except ProtobufDecodeError as error:
        raise ConfigError(f"{where} is no descriptor set: {error}", hint=how) from error
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
        descriptor = pool.FindMessageTypeByName(spec.message)
    except KeyError:
        known = sorted(f"{file.package}.{kind.name}".lstrip(".") for file in files for kind in file.message_type)
        shown = ", ".join(known[:20]) or "none"
        raise ConfigError(
            f"{where} has no message {spec.message}", hint=f"write package and name; its messages are {shown}"
        ) from None
    except TypeError as error:
        raise ConfigError(f"{where} does not hold together: {error}", hint=how) from error
    return ProtobufDecoder(message_factory.GetMessageClass(descriptor))
