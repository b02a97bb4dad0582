"""The command ``support-dump``, which collects data about an installation into one file without secrets."""

import io
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wormhole.model.errors import UsageError, WormholeError
from wormholectl.shared.options import AsJson, Where, now, with_where
from wormholectl.show.printer import print_json, print_text, print_warnings, size, utc

if TYPE_CHECKING:
    from wormhole.config import Config
    from wormhole.coordination.port import Coordinator

__all__ = ["app"]

app = typer.Typer()

_LOG_BYTES: Final = 1 << 20
"""The number of bytes from the end of each log that the dump contains."""
_LOGS: Final = 64
_HISTORY: Final = 200
_DISTRIBUTION: Final = "wormhole-pubsub"


@app.command("support-dump", epilog="Example:\n\n  wormholectl support-dump -c shop.toml --output dump.tar.gz")
@with_where
def support_dump(
    where: Where,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The .tar.gz to write; default: named by the time."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Collect versions, configuration, state, the ends of logs and the doctor's report into one file, without
    secrets.
    """
    from google.protobuf.json_format import MessageToDict

    from wormhole.admin.admin_service import publisher_name
    from wormhole.admin.discovery import configured
    from wormholectl.doctor.installation import judge
    from wormholectl.doctor.redact import Redactor
    from wormholectl.doctor.survey import look

    made = now()
    target = output or Path(f"wormhole-support-{datetime.fromtimestamp(made, UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    config = None if where.publisher else configured(where)
    seen = look(where)
    redactor = Redactor(_secrets(where, config))
    entries: dict[str, str] = {}
    problems: list[str] = []

    def add(name: str, gather: Callable[[], Any]) -> None:
        try:
            found = gather()
        except (WormholeError, OSError, ValueError) as error:
            problems.append(redactor.text(f"{name}: {error}"))
            return
        if not isinstance(found, str):
            found = json.dumps(redactor.value(found), indent=1, ensure_ascii=False)
        entries[name] = redactor.text(found)

    add("about.json", lambda: _about(made))
    asked = not where.publisher and not seen.problem
    add("configuration.json", lambda: _configuration(where, config, asked))
    for status in seen.statuses:
        name = f"publishers/{publisher_name(status).replace('/', '.')}.json"
        add(name, lambda status=status: MessageToDict(status, preserving_proto_field_name=True))  # type: ignore[misc]
    add("doctor.json", lambda: judge(seen).as_dict())
    if asked:
        add("history.json", lambda: _history(where))
    for path in _logs(where, config):
        add(f"logs/{path.name}", lambda path=path: _end_of(path))  # type: ignore[misc]
    problems += [redactor.text(seen.problem)] if seen.problem else []
    problems += [redactor.text(answer.problem) for answer in seen.answers if answer.status is None]
    if problems:
        entries["problems.txt"] = "\n".join(problems) + "\n"
    _write(target, entries, made)
    if as_json:
        print_json({"file": str(target), "entries": sorted(entries), "problems": problems})
        return
    print_text(
        f"{target}: {size(target.stat().st_size)}, {len(entries)} files; passwords, tokens and keys are taken out",
        "It contains filters, names of tables and hosts, and log lines: read it before you send it away.",
    )
    print_warnings(f"not in it: {problem}" for problem in problems)


def _write(target: Path, entries: dict[str, str], made: float) -> None:
    """Write the archive. Only its owner may read it. An existing file is not replaced."""
    import tarfile

    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(
            f"{target} cannot be made: {error.strerror}",
            hint="name another file with --output",
            code="file-unwritable",
        ) from error
    folder = target.name.removesuffix(".tar.gz")
    with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, text in sorted(entries.items()):
            data = text.encode(errors="replace")
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size, info.mtime, info.mode = len(data), int(made), 0o600
            archive.addfile(info, io.BytesIO(data))


def _about(made: float) -> dict[str, Any]:
    import importlib.metadata

    from wormhole import __version__
    from wormhole.host.compiled import compiled_modules, hot_modules

    packages = {}
    for name in _required():
        with suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return {
        "wormhole": __version__,
        "made": utc(made),
        "python": sys.version,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": packages,
        "compiled": compiled_modules(),
        "hot": list(hot_modules()),
    }


def _configuration(where: Where, config: "Config | None", asked: bool) -> dict[str, Any]:
    """The configuration in the file, and the configuration that the coordinator stores, which may differ."""
    from wormhole.admin.discovery import with_coordinator
    from wormhole.config.load import config_to_json, plain

    found: dict[str, Any] = {"file": None if config is None else json.loads(config_to_json(config))}
    if not asked:
        return found

    async def stored(coordinator: "Coordinator") -> dict[str, Any]:
        configuration = await coordinator.configuration()
        return {
            "version": configuration.version,
            "datasets": {name: plain(one) for name, one in configuration.datasets.items()},
            "applications": {name: plain(one) for name, one in configuration.applications.items()},
        }

    found["stored"] = with_coordinator(where, stored)
    return found


def _history(where: Where) -> list[dict[str, Any]]:
    from wormhole.admin.discovery import with_coordinator
    from wormhole.coordination.records import history_fields

    entries = with_coordinator(where, lambda coordinator: coordinator.history(_HISTORY))
    return [history_fields(entry) for entry in entries]


def _logs(where: Where, config: "Config | None") -> list[Path]:
    """The newest logs of this host's monitor and publishers."""
    from wormhole.coordination.up_data_folder import up_folder

    if config is None:
        return []
    folders = [config.monitor_state_dir / "logs", up_folder(Path(where.coordinator))]
    found = [path for folder in folders for path in folder.glob("*.log")]
    return sorted(found, key=lambda path: -path.stat().st_mtime)[:_LOGS]


def _end_of(path: Path) -> str:
    """The end of the file from a whole line on, because a part of a line may contain a part of a secret."""
    with path.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - _LOG_BYTES))
        data = file.read(_LOG_BYTES)
    if length > _LOG_BYTES:
        data = data.partition(b"\n")[2]
    return data.decode(errors="replace")


def _secrets(where: Where, config: "Config | None") -> Iterator[str]:
    """The values of this host's secrets that this user may read. Logs of this user contain no other secrets."""
    from wormhole.admin.discovery import state_dir
    from wormhole.host.local_admin import token_path

    files = [token_path(state_dir(where, config))]
    if config is not None:
        files += _secret_files(config)
    for file in files:
        with suppress(OSError, ValueError):
            yield file.read_text(errors="replace")


def _secret_files(value: object, name: str = "") -> Iterator[Path]:
    """Every file in ``value`` whose setting means a file with a secret: a password, a key, an account."""
    from pydantic import BaseModel

    if isinstance(value, Path):
        if name == "key" or name.endswith("_file"):
            yield value
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from _secret_files(getattr(value, field), field)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _secret_files(one, name)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _secret_files(one, name)


def _required() -> list[str]:
    """The names of all packages that this product may need in an installation."""
    import importlib.metadata

    try:
        required = importlib.metadata.requires(_DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    return sorted({re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in required})
