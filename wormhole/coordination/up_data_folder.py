"""The data folder of ``wormholectl up``; other processes find the embedded ZooKeeper through it."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from wormhole.config import CoordinatorConfig
from wormhole.model.errors import ConfigError
from wormhole.model.json_input import read_json
from wormhole.model.replace_file import replace_file

__all__ = ["at_embedded", "embedded_coordinator", "remove_embedded", "up_folder", "write_embedded"]

_FILE: Final = "coordinator.json"


def up_folder(file: Path, data: Path | None = None) -> Path:
    """The data folder of a configuration file: ``data``, or ``.wormhole/<its name>`` beside it. Absolute.

    Raises :class:`~wormhole.model.errors.ConfigError` for a folder beside the file that another user made. That user
    could read the credentials in it, and replace a file by a link to any other file.
    """
    if data is not None:
        return data.absolute()
    folder = file.absolute().parent / ".wormhole" / file.stem
    for path in (folder.parent, folder):
        if (owner := _stranger(path, file)) is not None:
            raise ConfigError(
                f"{path} belongs to user {owner}, and every user can write to {path.parent}: it is not used",
                hint=f"move {file} to a folder that only you can write to, or name a data folder of yours with --data",
                code="credentials-exposed",
            )
    return folder


def _stranger(path: Path, file: Path) -> int | None:
    """The uid of the owner of ``path`` if that user has no right to ``file``, else ``None``."""
    try:
        owner = path.lstat().st_uid
        if not path.parent.stat().st_mode & stat.S_IWOTH or owner in {0, os.geteuid()}:
            return None
        return None if owner == file.stat().st_uid else owner
    except OSError:  # the file is missing or unreadable: opening it reports the reason
        return None


def write_embedded(folder: Path, coordinator: CoordinatorConfig, state_dir: Path) -> Path:
    """Write the embedded ZooKeeper's address and credentials in one step, as a configuration file. Blocks. Raises
    ``OSError``.

    ``state_dir``: the state folder of the publishers. Commands that are given this file find their tokens there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = coordinator.model_dump(mode="json", exclude_defaults=True)
    content = {"version": 1, "coordinator": settings, "publisher": {"state_dir": str(state_dir)}}
    replace_file(file := folder / _FILE, json.dumps(content), sync=False)
    return file


def at_embedded(given: CoordinatorConfig, embedded: CoordinatorConfig) -> CoordinatorConfig:
    """The settings of a file that names no ZooKeeper, such as the session's length, with the address and the
    credentials of the embedded one.
    """
    return given.model_copy(update={name: getattr(embedded, name) for name in ("zookeeper", "auth_file", "same_user")})


def remove_embedded(folder: Path) -> None:
    """Remove the file that :func:`write_embedded` wrote; idempotent. Blocks."""
    with contextlib.suppress(OSError):
        (folder / _FILE).unlink()


def embedded_coordinator(file: Path) -> CoordinatorConfig:
    """The ZooKeeper that ``wormholectl up`` embeds for a configuration file that names none. Blocks.

    Raises :class:`~wormhole.model.errors.ConfigError` when no `up` runs, or its file is not valid.
    """
    path = up_folder(file) / _FILE
    try:
        given = read_json(path.read_text(encoding="utf-8"))
        if "zookeeper" in given:  # an `up` of an earlier release wrote it; its ZooKeeper needs no credentials
            given = {"coordinator": {"zookeeper": given["zookeeper"]}}
        settings = CoordinatorConfig.model_validate(given["coordinator"])
        if not settings.zookeeper:
            raise ValueError("it names no ZooKeeper")
    except FileNotFoundError:
        raise ConfigError(
            f"{file} names no ZooKeeper, no application lists its subscribers, and no `wormholectl up` runs it",
            hint=f'start `wormholectl up -f {file}`, add zookeeper = "host:port/root" to [coordinator], or list '
            "addresses in [applications.NAME.subscribers]",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", hint=f"start `wormholectl up -f {file}` again") from error
    return settings
