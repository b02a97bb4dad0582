"""Finds the relays of a command: relays that publishers report, and relay folders of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from publisher.relay.configured import ConfiguredRelay, configured_relay, left_relay
from publisher.relay.folder import FileState, look
from wormhole.admin import admin_service, discovery
from wormhole.admin.admin_service import Answer, publisher_name
from wormhole.config import Config, bound
from wormhole.config.check import logs_of
from wormhole.host.where import Where
from wormhole.model.errors import ConfigError, UsageError, WormholeError
from wormhole.model.visible import few
from wormhole.wire.markers import position_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["KnownRelay", "known_relays", "of_folder"]


@dataclass(frozen=True, slots=True)
class KnownRelay:
    """A relay. ``log``: ``DATASET/COPY/LOG``; empty for a folder that the operator named. ``answer``: the answer of its
    publisher, if the publisher reports a relay. ``configured``: the relay's configuration on this host.
    """

    log: str
    answer: Answer | None = None
    folder: Path | None = None
    configured: ConfiguredRelay | None = None


def known_relays(where: Where, log: str, folder: Path | None) -> list[KnownRelay]:
    """Every relay; or the relay of one ``log``; or the relay in ``folder``.

    Raises :class:`~wormhole.model.errors.WormholeError` if no relay is found.
    """
    if folder is not None:
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder", hint="name the folder with the files relay-*.wrf")
        if not look(folder):
            raise UsageError(f"{folder} has no relay files", hint="name the folder with the files relay-*.wrf")
        return [KnownRelay("", folder=folder)]
    silence: WormholeError | None = None
    try:
        answers = admin_service.ask_each(where)
    except ConfigError:
        raise
    except WormholeError as error:
        answers, silence = [], error
    found = {
        publisher_name(one.status): KnownRelay(publisher_name(one.status), one)
        for one in answers
        if one.status is not None and one.status.HasField("relay")
    }
    of_file = _configured(where)
    for name, configured in of_file.items():
        answer = found[name].answer if name in found else None
        found[name] = KnownRelay(name, answer, configured.folder, configured)
    known = sorted(found)
    if log:
        found = {name: one for name, one in found.items() if name == log}
    if not found:
        if silence is not None and not of_file:
            raise silence
        raise UsageError(
            f"{log or 'no log there'} has {'no' if log else 'a'} relay",
            hint=f"name one of {few(known)}"
            if known
            else "`relay` in the log's source turns one on (docs/relay.md); a log is written DATASET/COPY/LOG",
        )
    return [found[name] for name in sorted(found)]


def _configured(where: Where) -> dict[str, ConfiguredRelay]:
    config = None if where.publisher else discovery.configured(where)
    if config is None:
        return {}
    config = _with_datasets(config, where)
    found = {}
    for name in logs_of(config):
        try:
            relay = configured_relay(config, *name.split("/")) or left_relay(config, *name.split("/"))
        except ConfigError:  # the source is not in this file, but in another host's
            continue
        if relay is not None:
            found[name] = relay
    return found


def _with_datasets(config: Config, where: Where) -> Config:
    """``config`` with the datasets from ZooKeeper, if the file has none."""
    if where.folder is not None:
        config = config.model_copy(
            update={"publisher": config.publisher.model_copy(update={"state_dir": where.folder})}
        )
    if config.datasets:
        return config
    try:
        stored = discovery.ask_coordinator(where.coordinator, lambda client: client.configuration())
    except WormholeError:
        return config
    return bound(config, stored.datasets)


def of_folder(relay: KnownRelay) -> tuple[admin_pb2.PublisherStatus, list[FileState]]:
    """The state of a relay from its files, for a relay that no publisher reports. Raises the errors of
    :func:`~publisher.relay.folder.look`."""
    assert relay.folder is not None
    files = look(relay.folder)
    status = admin_pb2.RelayStatus(bytes=sum(one.bytes for one in files), log_bytes=sum(one.log_bytes for one in files))
    if relay.configured is not None:
        settings = relay.configured.settings
        status.mode, status.budget_bytes = settings.mode, settings.budget
        status.slot_budget_bytes, status.keeps_slot = settings.slot_budget, settings.on_full == "keep_slot"
    whole = [(one.begin, one.end) for one in files if one.begin is not None and one.end is not None]
    for begin, end in whole:
        if status.stretches and status.stretches[-1].end == position_to_message(begin.order):
            status.stretches[-1].end.CopyFrom(position_to_message(end))
        else:
            status.stretches.add(begin=position_to_message(begin.order), end=position_to_message(end))
    if whole:
        status.begin.CopyFrom(status.stretches[0].begin)
        status.tip.CopyFrom(status.stretches[-1].end)
        status.begin_committed_s = whole[0][0].committed_at_us / 1e6
    return admin_pb2.PublisherStatus(relay=status), files
