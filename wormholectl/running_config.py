"""What a file of the static form would change of what this host's publishers run."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from wormhole.config import Config, bound, plain
from wormhole.config.one_log import of_one_log, read_running
from wormhole.coordination.differences import Difference, compared, flattened
from wormhole.host.ready_file import read_ready, ready_path
from wormhole.model.errors import Retryable
from wormholectl import discovery
from wormholectl.config_file import logs_of
from wormholectl.options import Where

__all__ = ["differences_from_running"]

# The same for every publisher, or nothing that one reads.
_LEFT_OUT: Final = frozenset({"version", "coordinator", "monitor", "datasets", "applications"})


class _Settings(NamedTuple):
    """Of one log, by their paths: those that are set, and all."""

    given: dict[str, str]
    every: dict[str, str]


def differences_from_running(file: Path) -> tuple[Difference, ...]:
    """Setting by setting, from what the publishers of this host run to what they would run with ``file``. Blocks.

    Raises :class:`~wormhole.model.errors.WormholeError` when none runs, or when one does not say what it runs.
    """
    config = discovery.configured(Where(coordinator=str(file)))
    assert config is not None
    whole = bound(config, config.datasets)
    ours = [log for log in logs_of(config) if _host_of(config, log) in ("", config.monitor.host_name)]
    after = {log: _settings(whole, log) for log in ours}
    before = _running(config.publisher.state_dir)
    if not before:
        raise Retryable(
            f"no publisher of {file} runs on this host, so there is nothing to compare it with",
            hint="start it (`wormholectl up`, `monitor run` or `publisher run`): it then runs what the file says",
        )
    found: list[Difference] = []
    for log in sorted(before.keys() | after.keys()):
        if log in before and log in after:
            old, new = before[log], after[log]
            found += compared(old.given, new.given, old.every, new.every)
        elif log in after:  # what other publishers run already is not new
            found += compared({}, _beside(after[log], before), {}, {})
        else:
            found += compared(_beside(before[log], after), {}, {}, {})
    return tuple(sorted(set(found), key=lambda one: one.path))


def _host_of(config: Config, log: str) -> str:
    dataset, copy, name = log.split("/")
    return config.datasets[dataset].copies[copy].logs[name].host


def _running(state_dir: Path) -> dict[str, _Settings]:
    found = {}
    for path in sorted(state_dir.glob(f"*/*/*/{ready_path(state_dir, '', '', '').name}")):
        ready = read_ready(path)
        if ready is None:
            continue
        log = "/".join(path.parent.relative_to(state_dir).parts)
        config = read_running(path.parent, ready.version, ready.config)
        if config is None:
            raise Retryable(
                f"the publisher of {log} does not say what it runs: it is of release {ready.version}, or of another "
                "coordinator",
                hint="restart it with this release: it then runs what the file says",
            )
        found[log] = _settings(bound(config, config.datasets), log)
    return found


def _settings(config: Config, log: str) -> _Settings:
    dataset, copy, name = log.split("/")
    narrow = of_one_log(config, dataset, copy, name)
    return _Settings(_flat(narrow, defaults=False), _flat(narrow, defaults=True))


def _flat(config: Config, *, defaults: bool) -> dict[str, str]:
    whole = config.model_dump(mode="json", by_alias=True, exclude_defaults=not defaults, exclude=set(_LEFT_OUT))
    whole["datasets"] = {name: plain(one, defaults=defaults) for name, one in config.datasets.items()}
    whole["applications"] = {name: plain(one, defaults=defaults) for name, one in config.applications.items()}
    return flattened(whole)


def _beside(one: _Settings, others: dict[str, _Settings]) -> dict[str, str]:
    known = {path for other in others.values() for path in other.given}
    return {path: value for path, value in one.given.items() if path not in known}
