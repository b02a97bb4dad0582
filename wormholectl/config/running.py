"""Compares a file of the static form with the configuration that this host's publishers run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from publisher.relay.configured import configured_relay
from wormhole.admin import discovery
from wormhole.config import Config, bound, plain
from wormhole.config.check import logs_of
from wormhole.config.one_log import of_one_log, read_running
from wormhole.coordination.config_review import Fleet, warnings
from wormhole.coordination.differences import SettingDifference, compared, differences, flattened
from wormhole.coordination.port import StoredConfig
from wormhole.host.ready_file import read_ready, ready_path
from wormhole.model.errors import ConfigError, Retryable
from wormholectl.shared.options import Where

__all__ = ["differences_from_running"]

# Settings that are equal for all publishers, or that no publisher reads.
_LEFT_OUT: Final = frozenset({"version", "coordinator", "monitor", "datasets", "applications"})


class _Settings(NamedTuple):
    """The settings of one log, by path: the explicit settings, and all settings with their defaults."""

    given: dict[str, str]
    every: dict[str, str]


def differences_from_running(file: Path) -> tuple[tuple[SettingDifference, ...], tuple[str, ...]]:
    """The settings in which ``file`` differs from the configuration that the publishers of this host run, and warnings.
    Blocks.

    Raises :class:`~wormhole.model.errors.WormholeError` if no publisher runs, or if the configuration of one is not
    known.
    """
    config = discovery.configured(Where(coordinator=str(file)))
    assert config is not None
    ours = [log for log in logs_of(config) if _host_of(config, log) in ("", config.monitor.host_name)]
    after = {log: _narrow(config, log) for log in ours}
    before = _running(config.publisher.state_dir)
    if not before:
        raise Retryable(
            f"no publisher of {file} runs on this host, so there is nothing to compare it with",
            hint="start it (`wormholectl up`, `monitor run` or `publisher run`): it then runs what the file contains",
            code="no-publisher",
        )
    both = [(before[log], after[log]) for log in sorted(before.keys() & after.keys())]
    settings, risks = _between(before, after), dict.fromkeys(risk for pair in both for risk in _risks(*pair))
    return tuple(sorted(settings, key=lambda one: one.path)), tuple(risks)


def _between(before: Mapping[str, Config], after: Mapping[str, Config]) -> set[SettingDifference]:
    old, new = ({log: _settings(one) for log, one in side.items()} for side in (before, after))
    found: set[SettingDifference] = set()
    for log in old.keys() | new.keys():
        if log in old and log in new:
            found.update(compared(old[log].given, new[log].given, old[log].every, new[log].every))
        elif log in new:  # settings that other publishers already run are not new
            found.update(compared({}, _beside(new[log], old), {}, {}))
        else:
            found.update(compared(_beside(old[log], new), {}, {}, {}))
    return found


def _risks(before: Config, after: Config) -> tuple[str, ...]:
    stored = StoredConfig(before.datasets, before.applications, 0)
    fleet = Fleet(served=before.applications.keys(), hosts={_host_of(after, log) for log in logs_of(after)})
    known = warnings(stored, differences(stored, after, prune=True), after, fleet)
    return (*known, *(risk for log in logs_of(after) if (risk := _relay_risk(before, after, log))))


def _relay_risk(before: Config, after: Config, log: str) -> str:
    """The effect of a changed mode or folder on a relay's records; empty without one. A change of the sharding is
    reported elsewhere."""
    dataset, copy, name = log.split("/")
    try:
        old, new = (configured_relay(config, dataset, copy, name) for config in (before, after))
    except ConfigError as error:
        return str(error)
    if old is None or (new is not None and new.folder == old.folder and new.settings.budget >= old.settings.budget):
        return ""
    if new is not None and new.folder == old.folder:
        return f"relay_budget of {log} gets smaller: the oldest records go until the rest of them fits"
    left = (
        f"the relay of {log} is off then" if new is None else f"the relay of {log} begins anew in {new.folder}"
    ) + f": what {old.folder} holds is read no more, and stays until it is removed by hand"
    if old.settings.mode == "hold":
        left += (
            ". Flows that are behind what the datastore still has lose the rest: first let them read it "
            "(`wormholectl flows`)"
        )
    return left


def _host_of(config: Config, log: str) -> str:
    dataset, copy, name = log.split("/")
    return config.datasets[dataset].copies[copy].logs[name].host


def _running(state_dir: Path) -> dict[str, Config]:
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
                hint="restart it with this release: it then runs what the file contains",
            )
        found[log] = _narrow(config, log)
    return found


def _narrow(config: Config, log: str) -> Config:
    """The configuration of the publisher of ``log``, in the form that a monitor writes."""
    dataset, copy, name = log.split("/")
    return of_one_log(bound(config, config.datasets), dataset, copy, name)


def _settings(narrow: Config) -> _Settings:
    return _Settings(_flat(narrow, defaults=False), _flat(narrow, defaults=True))


def _flat(config: Config, *, defaults: bool) -> dict[str, str]:
    whole = config.model_dump(mode="json", by_alias=True, exclude_defaults=not defaults, exclude=set(_LEFT_OUT))
    whole["datasets"] = {name: plain(one, defaults=defaults) for name, one in config.datasets.items()}
    whole["applications"] = {name: plain(one, defaults=defaults) for name, one in config.applications.items()}
    return flattened(whole)


def _beside(one: _Settings, others: Mapping[str, _Settings]) -> dict[str, str]:
    known = {path for other in others.values() for path in other.given}
    return {path: value for path, value in one.given.items() if path not in known}
