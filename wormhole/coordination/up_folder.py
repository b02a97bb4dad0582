"""The data folder of ``wormholectl up``: where it keeps everything, and where others find the ZooKeeper that it embeds."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from wormhole.config import CoordinatorConfig
from wormhole.errors import ConfigError
from wormhole.json_input import read_json

__all__ = ["embedded_coordinator", "forget_embedded", "tell_embedded", "up_folder"]

_FILE: Final = "coordinator.json"


def up_folder(file: Path, data: Path | None = None) -> Path:
    """The data folder of a configuration file: ``data``, or ``.wormhole/<its name>`` beside it. Absolute."""
    return data.absolute() if data is not None else file.absolute().parent / ".wormhole" / file.stem


def tell_embedded(folder: Path, zookeeper: str) -> None:
    """Write where the embedded ZooKeeper answers, ``host:port/root``, in one step. Blocks. Raises ``OSError``."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f".{_FILE}.{os.getpid()}"
    try:
        made.write_text(json.dumps({"zookeeper": zookeeper}), encoding="utf-8")
        made.replace(folder / _FILE)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def forget_embedded(folder: Path) -> None:
    """It answers there no longer; idempotent. Blocks."""
    with contextlib.suppress(OSError):
        (folder / _FILE).unlink()


def embedded_coordinator(file: Path) -> CoordinatorConfig:
    """The ZooKeeper that ``wormholectl up`` embeds for a configuration file that names none. Blocks.

    Raises :class:`~wormhole.errors.ConfigError` when nobody told of one, or what stands there makes no sense.
    """
    path = up_folder(file) / _FILE
    try:
        given = read_json(path.read_text(encoding="utf-8"))
        settings = CoordinatorConfig(zookeeper=given["zookeeper"] or "(empty)")
    except FileNotFoundError:
        raise ConfigError(
            f"{file} names no ZooKeeper, no application lists its subscribers, and no `wormholectl up` runs it",
            hint=f'start `wormholectl up -f {file}`, add zookeeper = "host:port/root" to [coordinator], or list addresses in '
            "[applications.NAME.subscribers]",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", hint=f"start `wormholectl up -f {file}` again") from error
    return settings
