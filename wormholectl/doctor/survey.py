"""Surveys an installation: coordinator, hosts, publishers, clocks and disks.

:mod:`wormholectl.doctor.installation` judges the survey.
"""

from __future__ import annotations

import http.client
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from wormhole import __version__
from wormhole.admin import admin_service
from wormhole.admin.admin_service import Answer, publisher_name
from wormhole.admin.discovery import configured, group_of, state_dir, with_coordinator
from wormhole.config import Config, DatasetConfig, unlisted
from wormhole.coordination.port import Coordinator, LogGroup, LogOwners
from wormhole.coordination.static import StaticCoordinator
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.tls import is_loopback
from wormhole.model.errors import Retryable, UsageError, WormholeError
from wormhole.model.problem import Problem
from wormholectl.doctor.installation import ClockReading, Contended, DiskRoom, Survey
from wormholectl.hosts.status import Host, hosts_of
from wormholectl.publishers.log_moves import expected_candidates
from wormholectl.shared.certificates import named, report_on
from wormholectl.shared.options import Where

__all__ = ["clock_of", "look"]

_TIMEOUT_S: Final = 3.0


def look(where: Where) -> Survey:
    """Survey all parts of the installation that this host can reach.

    Raises :class:`~wormhole.model.errors.UsageError` if ``where`` names no installation.
    """
    config = None if where.publisher else configured(where)
    subject = where.publisher or where.coordinator
    hosts: list[Host] = []
    stored = _Stored()
    problem = ""
    if not where.publisher:
        try:
            stored = with_coordinator(where, _stored)
            hosts = hosts_of(where)
        except UsageError:
            raise
        except WormholeError as error:
            problem = error.message
    answers: list[Answer] = []
    if not problem:
        try:
            answers = admin_service.ask_each(where)
        except Retryable as error:  # the coordinator does not answer, so no registration is known
            if not stored.logs:
                problem = error.message
    with ThreadPoolExecutor(8) as pool:
        clocks = tuple(pool.map(clock_of, _told(answers)))
    return Survey(
        subject,
        __version__,
        problem,
        tuple(answers),
        tuple(hosts),
        stored.logs,
        tuple(_disks(where, config)),
        clocks,
        stored.damaged,
        named(answers),
        report_on(where.tls or (None if config is None else config.tls)),
        stored.whole,
        stored.unsafe,
        stored.contended,
    )


@dataclass(frozen=True, slots=True)
class _Stored:
    """The coordinator's data. ``logs``: the configured logs; ``damaged``: unreadable records; ``whole``: logs whose
    whole source is stored; ``unsafe``: what is not safe there; ``contended``: see
    :class:`~wormholectl.doctor.installation.Survey`.
    """

    logs: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    unsafe: tuple[Problem, ...] = ()
    contended: tuple[Contended, ...] = ()


async def _stored(coordinator: Coordinator) -> _Stored:
    datasets = (await coordinator.configuration()).datasets
    await coordinator.subscribers()
    await coordinator.publishers()
    owners = await coordinator.log_owners()
    logs = sorted(log for name, one in datasets.items() for log in _logs_of(name, one))
    damaged = tuple(str(error) for _, error in sorted(coordinator.problems.items()))
    whole = () if isinstance(coordinator, StaticCoordinator) else tuple(sorted(unlisted(Config(version=1), datasets)))
    return _Stored(tuple(logs), damaged, whole, await coordinator.warnings(), tuple(_contended(logs, datasets, owners)))


def _contended(
    logs: Sequence[str], datasets: Mapping[str, DatasetConfig], owners: Mapping[LogGroup, LogOwners]
) -> Iterable[Contended]:
    """The logs that have candidates, or have or had an owner."""
    grouped: dict[LogGroup, list[str]] = {}
    for log in logs:
        grouped.setdefault(group_of(datasets, log), []).append(log)
    for group, of_group in grouped.items():
        expected = tuple(expected_candidates(group, datasets))
        if group in owners or len(expected) > 1:
            yield Contended(group, tuple(of_group), expected, owners.get(group, LogOwners(None, (), (), None)))


def _logs_of(dataset: str, settings: DatasetConfig) -> Iterable[str]:
    return (f"{dataset}/{copy}/{log}" for copy, one in settings.copies.items() for log in one.logs)


def _told(answers: Iterable[Answer]) -> list[Answer]:
    """One publisher of each host whose clock can be read."""
    found = {
        answer.status.host: answer for answer in answers if answer.status is not None and answer.status.http_address
    }
    return list(found.values())


def clock_of(answer: Answer, clock: Clock = SYSTEM_CLOCK) -> ClockReading:
    """The clock of a publisher, by the date header of its HTTP endpoint, in whole seconds."""
    assert answer.status is not None
    status, address = answer.status, answer.status.http_address
    name = status.host or publisher_name(status)
    host, _, port = address.rpartition(":")
    if answer.tls is not None and not is_loopback(address):
        import ssl

        from wormhole.host.trust import Trust

        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host.strip("[]"), int(port), timeout=_TIMEOUT_S, context=Trust(answer.tls).context(ssl.PROTOCOL_TLS_CLIENT)
        )
    else:
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_TIMEOUT_S)
    before = clock.wall()
    try:
        connection.request("GET", "/healthz")
        date = connection.getresponse().headers.get("Date", "")
        after = clock.wall()
        seconds = parsedate_to_datetime(date).timestamp()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return ClockReading(name, None, str(error) or type(error).__name__)
    finally:
        connection.close()
    # The header names a whole second, and was written between the request and its answer.
    ahead = seconds - after if seconds > after else min(seconds + 1 - before, 0.0)
    return ClockReading(name, ahead)


def _disks(where: Where, config: Config | None) -> Iterable[DiskRoom]:
    folders = {state_dir(where, config)} | (set() if config is None else {config.monitor_state_dir})
    seen: set[tuple[int, int]] = set()
    for folder in sorted(folders):
        try:
            used, device = shutil.disk_usage(folder), folder.stat().st_dev
        except OSError:  # the folder is on another host, or is not made yet
            continue
        if (device, used.total) not in seen:
            seen.add((device, used.total))
            yield DiskRoom(str(folder), used.free, used.total)
