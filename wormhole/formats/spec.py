"""The declaration of a value format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, cast

__all__ = ["ALLOWED", "FormatSpec", "Kind"]

Kind = Literal["bytes", "json", "msgpack", "protobuf"]

ALLOWED: Final = (
    'must be "json", "msgpack", "bytes" or { protobuf = { descriptor_set = "file.desc", message = "package.Message" } }'
    ", or { ttl = FORMAT } for the values of a TtlDB"
)


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """A declared value format. ``bytes``: none, also if the dataset declares one.

    ``descriptor_set`` and ``message`` belong to ``protobuf``: a file that ``protoc --include_imports
    --descriptor_set_out`` wrote, and the full name of the message that every value is. ``ttl``: four bytes of time
    follow the formatted bytes, as a TtlDB writes its values.
    """

    kind: Kind
    descriptor_set: Path | None = None
    message: str = ""
    ttl: bool = False

    @classmethod
    def read(cls, value: object, folder: Path | None = None) -> FormatSpec:
        """Read a declaration from TOML or JSON. Relative paths start at ``folder``.

        Raises ``ValueError`` with what is allowed.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and value in ("bytes", "json", "msgpack"):
            return cls(cast(Kind, value))
        if isinstance(value, Mapping) and value.keys() == {"ttl"}:
            spec = cls.read(value["ttl"], folder)
            if spec.ttl or spec.kind == "bytes":
                raise ValueError(ALLOWED)
            return replace(spec, ttl=True)
        inner = value.get("protobuf") if isinstance(value, Mapping) and len(value) == 1 else None
        if not isinstance(inner, Mapping) or inner.keys() != {"descriptor_set", "message"}:
            raise ValueError(ALLOWED)
        path, message = inner["descriptor_set"], inner["message"]
        if not isinstance(path, str) or not path or "\0" in path:
            raise ValueError("descriptor_set must be the path of a file")
        if not isinstance(message, str) or not message:
            raise ValueError('message must be a full name such as "shop.v1.Order"')
        return cls("protobuf", Path(path) if folder is None else folder / path, message)

    @classmethod
    def from_text(cls, text: str) -> FormatSpec:
        """From one word, as on a command line:

        ``json``, ``msgpack``, ``bytes`` or ``protobuf:FILE:MESSAGE``, and ``ttl:`` before it. Raises ``ValueError``.
        """
        if text.startswith("ttl:"):
            return cls.read({"ttl": cls.from_text(text.removeprefix("ttl:")).plain()})
        if not text.startswith("protobuf:"):
            if text not in ("bytes", "json", "msgpack"):
                raise ValueError(
                    "must be json, msgpack, bytes or protobuf:FILE:MESSAGE, with ttl: before it for a TtlDB"
                )
            return cls.read(text)
        path, _, message = text.removeprefix("protobuf:").rpartition(":")
        return cls.read({"protobuf": {"descriptor_set": path, "message": message}})

    def plain(self) -> object:
        """The declaration in the form that :meth:`read` reads."""
        if self.ttl:
            return {"ttl": replace(self, ttl=False).plain()}
        if self.kind != "protobuf":
            return self.kind
        return {"protobuf": {"descriptor_set": str(self.descriptor_set), "message": self.message}}

    def __str__(self) -> str:
        name = f"protobuf {self.message}" if self.kind == "protobuf" else self.kind
        return f"{name} with a time to live" if self.ttl else name
