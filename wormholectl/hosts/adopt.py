"""``wormholectl hosts adopt``: copies the sources that ZooKeeper holds for a host into the host's own file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from wormhole.admin.discovery import with_coordinator
from wormhole.config import (
    Config,
    CoordinatorForm,
    DatasetConfig,
    bound,
    check_formats,
    listed,
    load,
    parse,
    sources_to_toml,
    unlisted,
)
from wormhole.model.errors import ConfigError, UsageError
from wormholectl.shared.confirm import confirm
from wormholectl.shared.errors import needs
from wormholectl.shared.options import Where
from wormholectl.show.printer import counted, print_text, print_warnings

__all__ = ["adopt"]

_NOT_OTHERS = ~0o022


def adopt(file: Path, yes: bool, only_print: bool) -> None:
    """Show the TOML tables that the file of this host's monitor lacks, ask, and add them. ``only_print``: only print
    the tables.

    Raises :class:`~wormhole.model.errors.UsageError` for a file that needs no tables or cannot be written.
    """
    config = load(file)
    if config.form is CoordinatorForm.STATIC:
        raise UsageError(
            f"{file} is of the static form: its own sources count already", hint="nothing is to be adopted"
        )
    datasets = with_coordinator(Where(coordinator=str(file)), lambda coordinator: coordinator.configuration()).datasets
    ours = _here(config, datasets)
    sources = {name: source for name, source in unlisted(config, datasets).items() if name in ours}
    if not sources and listed(config) is not None:
        print_text(f"{file}: nothing to adopt: what it does not list, ZooKeeper does not hold for this host either")
        print_warnings(_nowhere(config, datasets, ours))
        return
    block = sources_to_toml(sources)
    print_text(*block.strip().splitlines())
    if only_print:
        return
    print_text(f"This is what ZooKeeper contains; from now on only the list in {file} counts on this host.")
    confirm(f"add {counted(len(sources), 'source')} to {file}?", yes)
    _add(file, block)
    print_text(
        f"{file}: added {counted(len(sources), 'source')}; next: SIGHUP to this host's monitor, or "
        "`wormholectl up` again"
    )
    adopted = load(file)
    print_warnings([*_nowhere(adopted, datasets, ours), *_formats(adopted, datasets, ours)])


def _here(config: Config, datasets: Mapping[str, DatasetConfig]) -> set[str]:
    """The logs that the monitor of this file runs."""
    everything = set(datasets) if config.form is CoordinatorForm.EMBEDDED else None
    with needs("monitor"):
        from monitor.desired_logs import desired_logs
    return {str(key) for key in desired_logs(config, datasets, everything=everything)}


def _nowhere(config: Config, datasets: Mapping[str, DatasetConfig], ours: set[str]) -> list[str]:
    """Sentences about logs of this host whose source is a name that the file lacks. ZooKeeper holds only the name."""
    known = listed(config) or {}
    named = {
        f"{name}/{copy}/{log}": one.source
        for name, dataset in datasets.items()
        for copy, settings in dataset.copies.items()
        for log, one in settings.logs.items()
        if one.inline is None
    }
    return [
        f"{place} names the source {named[place]!r}, which this file does not list, and ZooKeeper holds its name "
        "only: add "
        f'[sources."{named[place]}"] with its `source` by hand; `wormholectl config history` shows what ZooKeeper '
        "held before"
        for place in sorted(ours & set(named))
        if named[place] not in known
    ]


def _formats(config: Config, datasets: Mapping[str, DatasetConfig], ours: set[str]) -> list[str]:
    """Sentences about descriptor sets that datasets of this host name but its file does not list. An operator has to
    decide about these."""
    problems = []
    for dataset in sorted({log.partition("/")[0] for log in ours}):
        try:
            check_formats(bound(config, datasets), dataset)
        except ConfigError as error:
            problems.append(str(error))
    return problems


def _add(file: Path, block: str) -> None:
    """Replace the file atomically. Owner and mode stay, except that other users lose the right to write."""
    path = file.resolve()
    text = (
        path.read_text(encoding="utf-8").rstrip("\n")
        + f"\n\n# What this host lets datasets read (`wormholectl hosts adopt`).{block}"
    )
    parse(text, str(file), folder=path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as made:
                found = path.stat()
                if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                    os.chown(draft, found.st_uid, found.st_gid)
                draft.chmod(found.st_mode & 0o7777 & _NOT_OTHERS)
                made.write(text)
                made.flush()
                os.fsync(handle)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written anew: {error.strerror}",
            hint="run this as its owner, or add what --print shows to it by hand",
            code="file-unwritable",
        ) from error
