"""Writes settings as TOML that the loader reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from wormhole.config.load import plain
from wormhole.config.model import ApplicationConfig, DatasetConfig, SourceConfig

__all__ = ["sources_to_toml", "to_toml"]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(datasets: Mapping[str, DatasetConfig], applications: Mapping[str, ApplicationConfig]) -> str:
    """A whole file with these records, with each setting that differs from its default."""
    lines = ["version = 1"]
    for section, tables in (("datasets", datasets), ("applications", applications)):
        for name in sorted(tables):
            _table([section, name], plain(tables[name]), lines)
    return "\n".join(lines) + "\n"


def sources_to_toml(sources: Mapping[str, SourceConfig]) -> str:
    """Tables to add to a host's file, ``[sources.NAME]``; an empty list for none."""
    lines: list[str] = [] if sources else ["", "[sources]"]
    for name in sorted(sources):
        _table(["sources", name], sources[name].model_dump(mode="json", exclude_defaults=True), lines)
    return "\n".join(lines) + "\n"


def _table(path: list[str], table: Mapping[str, Any], lines: list[str]) -> None:
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    own = {key: value for key, value in table.items() if key not in inner}
    if own:
        lines.append("")
        lines.append(f"[{'.'.join(map(_key, path))}]")
        lines.extend(f"{_key(key)} = {_value(value)}" for key, value in own.items())
    for key, value in inner.items():
        _table([*path, key], value, lines)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, str):
        # TOML's strings are those of JSON, except for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)
