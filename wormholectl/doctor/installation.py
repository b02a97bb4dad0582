"""Judges a survey of an installation: its problems, their causes and the next steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from wormhole.admin.admin_service import Answer, publisher_name
from wormhole.coordination.port import LogGroup, LogOwners
from wormhole.coordination.standbys import owner_name, why_not
from wormhole.model.findings import Report, Severity
from wormhole.model.problem import Problem
from wormhole.model.visible import few
from wormhole.wire.conditions import (
    Condition,
    State,
    flow_condition,
    log_condition,
    other_warnings,
    step_of_all,
    why_no_flows,
)
from wormhole.wire.problems import problem_of
from wormhole.wire.v1 import admin_pb2
from wormholectl.hosts.status import Host
from wormholectl.publishers.log_moves import refusal
from wormholectl.shared.certificates import TlsReport
from wormholectl.show.printer import size, span

__all__ = ["ClockReading", "Contended", "DiskRoom", "Survey", "judge"]

_CLOCK_S: Final = 2.0
"""Seconds by which clocks may differ. They are compared by a header in whole seconds."""
_LITTLE_DISK: Final = 1 << 30
_NO_DISK: Final = 100 << 20
_LITTLE_HEADROOM_S: Final = 3600.0
_FEWER: Final = "{} owns the log, and fewer could take it over"


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """``free`` of ``total`` bytes on the file system of ``path``."""

    path: str
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class ClockReading:
    """How far the clock of ``name`` is ahead of this host's, in seconds; ``None``: not read because of ``problem``."""

    name: str
    ahead_s: float | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Contended:
    """A log that several publishers may serve, or that has or had an owner. ``logs``: its names, ``dataset/copy/log``.
    ``expected``: the candidates that the configuration names, the preferred one first.
    """

    group: LogGroup
    logs: tuple[str, ...]
    expected: tuple[str, ...]
    owners: LogOwners

    @property
    def owner(self) -> str:
        """The owner as ``COPY@HOST``; empty if no publisher owns the log."""
        return owner_name(self.owners)


@dataclass(frozen=True, slots=True)
class Survey:
    """The facts about an installation. ``subject``: the installation as the operator named it.

    ``problem``: why the coordinator cannot be reached; empty if it can, or if there is none.

    ``damaged``: a sentence for each unreadable record of the coordinator. ``unsafe``: the result of
    :meth:`~wormhole.coordination.port.Coordinator.warnings`. ``logs``: the configured logs, as ``dataset/copy/log``.
    ``version``: the version of this command. ``contended``: logs that several publishers may serve.
    """

    subject: str
    version: str
    problem: str = ""
    answers: tuple[Answer, ...] = ()
    hosts: tuple[Host, ...] = ()
    logs: tuple[str, ...] = ()
    disks: tuple[DiskRoom, ...] = ()
    clocks: tuple[ClockReading, ...] = ()
    damaged: tuple[str, ...] = ()
    certificates: Mapping[str, str] = field(default_factory=dict)
    """By address of a publisher with TLS: the name in its certificate."""
    tls: TlsReport | None = None
    """The files of ``[tls]`` that this command uses."""
    whole_sources: tuple[str, ...] = ()
    """Logs whose whole source is stored in the coordinator, as an earlier release did."""
    unsafe: tuple[Problem, ...] = ()
    contended: tuple[Contended, ...] = ()

    @property
    def statuses(self) -> list[admin_pb2.PublisherStatus]:
        """The states of the publishers that answer."""
        return [answer.status for answer in self.answers if answer.status is not None]

    @property
    def unreachable(self) -> bool:
        """Whether too little of the installation answers to judge it."""
        return bool(self.problem) or (bool(self.answers) and not self.statuses)


def judge(seen: Survey) -> Report:
    """The report on the survey: each finding with its consequence and the next step."""
    report = Report(seen.subject)
    report.facts["this command"] = seen.version
    report.facts["publishers"] = str(len(seen.answers))
    report.facts["flows"] = str(sum(len(status.flows) for status in seen.statuses))
    if seen.problem:
        because = (
            "what is configured and who is there cannot be known; existing flows go on where their markers are local"
        )
        report.add("coordinator", Severity.PROBLEM, seen.problem, because, "bring it back, or correct -c")
    elif (seen.hosts or seen.logs) and not seen.damaged:
        report.add("coordinator", Severity.OK, "it answers")
    for unsafe in seen.unsafe:
        because = "who may do that can make publishers and subscribers do what they like"
        report.add("coordinator", Severity.WARN, unsafe.text, because, unsafe.hint, unsafe.code)
    for damaged in seen.damaged:
        because = "it is left out: what ran with its last good form goes on, and nothing new begins with it"
        step = (
            "`wormholectl config apply FILE` writes configuration anew; a process registers anew when it is restarted"
        )
        report.add("coordinator", Severity.PROBLEM, damaged, because, step)
    _sources(report, seen)
    _monitors(report, seen)
    _publishers(report, seen)
    _flows(report, seen.statuses)
    _pushing(report, seen)
    _certificates(report, seen.tls)
    _versions(report, seen)
    _clocks(report, seen.clocks)
    _disks(report, seen.disks)
    return report


def _sources(report: Report, seen: Survey) -> None:
    if seen.whole_sources:
        what = f"the coordinator holds the whole source of {few(list(seen.whole_sources))}"
        because = (
            "on a host whose file lists no sources, who can write there can have a file read and sent, or an "
            "address dialled"
        )
        step = (
            "`wormholectl hosts adopt -c FILE` on each host, with the file of its monitor; then `wormholectl "
            "config apply FILE`"
        )
        report.add("sources", Severity.WARN, what, because, step)


def _monitors(report: Report, seen: Survey) -> None:
    for host in seen.hosts:
        if host.monitor is not None:
            bad = {
                name: phase for name, phase in host.monitor.publishers.items() if phase in {"given_up", "backing_off"}
            }
            for name, phase in sorted(bad.items()):
                what = f"{host.name} cannot keep {name} running: {phase.replace('_', ' ')}"
                because = _of_given_up(seen, name, host.name)
                step = f"read logs/{name.replace('/', '.')}.log in the monitor's state_dir, then send it SIGHUP"
                report.add("monitors", Severity.PROBLEM, what, because, step)
            if host.request.drained:
                _drained(report, host)
            elif not bad:
                report.add("monitors", Severity.OK, f"one runs on {host.name}")
        elif host.request.drained:
            _drained(report, host)
        else:
            because = f"{', '.join(host.logs)} would not be started again after a crash"
            step = f"start `wormholectl monitor run` on {host.name}"
            report.add("monitors", Severity.PROBLEM, f"none runs on {host.name}", because, step)


def _of_given_up(seen: Survey, log: str, host: str) -> str:
    """The consequence if ``host`` runs no publisher of the log."""
    for one in seen.contended:
        if log in one.logs and one.owners.owner is not None and one.owners.owner.host != host:
            return _FEWER.format(one.owner)
    return "no publisher reads this log"


def _drained(report: Report, host: Host) -> None:
    what = f"{host.name} is drained by {host.request.by or 'an operator'}"
    step = f"`wormholectl drain {host.name} --undo` when the maintenance is over"
    report.add("monitors", Severity.WARN, what, "its publishers stay stopped", step)


def _publishers(report: Report, seen: Survey) -> None:
    for answer in seen.answers:
        if answer.status is None:
            step = _step_of_silent(seen, answer.address)
            what = "what its flows do is not known"
            report.add("publishers", Severity.PROBLEM, answer.problem, what, step, code="publisher-silent")
    if len(seen.answers) == len(seen.statuses):
        _unserved(report, seen)
    for one in seen.contended:
        _standbys(report, seen, one)
    for status in seen.statuses:
        name = publisher_name(status)
        good = True
        condition = log_condition(status)
        if condition.fault or condition.state is State.NO_COORDINATOR:
            because = "it begins no new flow until contact is back"
            if condition.fault:
                because = "nothing of its log is delivered"
            what = f"{name}: {condition.cause}"
            report.add("publishers", Severity.PROBLEM, what, because, condition.next_step, condition.code)
            good = False
        for problem in other_warnings(status, condition):
            what, because = f"{name}: {problem.text}", "the publisher reports it"
            report.add("publishers", Severity.WARN, what, because, problem.hint or "see its log", problem.code)
            good = False
        if not status.compiled:
            because = "reading and filtering are many times slower"
            report.add(
                "publishers", Severity.WARN, f"{name} runs interpreted", because, "install a C compiler and build again"
            )
            good = False
        if good:
            report.add("publishers", Severity.OK, f"{name} answers")


def _step_of_silent(seen: Survey, address: str) -> str:
    """The next step for a publisher that does not answer."""
    for one in seen.contended:
        owner, standbys = one.owners.owner, one.owners.candidates
        if owner is not None and owner.address == address and standbys:
            return (
                f"look at its host; if the process is gone or frozen, {' or '.join(each.name for each in standbys)} "
                f"takes {one.group} over when coordinator.session_timeout is over: ask again then"
            )
    return "look at its host; its monitor starts it again"


def _unserved(report: Report, seen: Survey) -> None:
    """Report the logs that no publisher serves. A log of several copies that serve it in turn is reported once."""
    names = {publisher_name(status) for status in seen.statuses}
    used = {log for host in seen.hosts if not host.request.drained for log in host.logs}
    drained = {log for host in seen.hosts for log in host.logs} - used
    taking_turns = {log: one for one in seen.contended for log in one.logs}
    reported: set[str] = set()
    for log in seen.logs:
        one = taking_turns.get(log)
        logs = one.logs if one is not None else (log,)
        if not reported.isdisjoint(logs) or not names.isdisjoint(logs) or drained.issuperset(logs):
            continue
        reported.update(logs)
        because = "its updates are not delivered"
        if one is not None and one.owners.candidates:
            waits = [(each.name, refusal(each, one.owners) or why_not(each)) for each in one.owners.candidates]
            what = f"no publisher owns the log {one.group}"
            stands_by = few([f"{name} stands by{f': {why.text}' if why else ''}" for name, why in waits])
            hints: dict[str, list[str]] = {}
            for name, why in waits:
                if why.hint:
                    hints.setdefault(why.hint, []).append(name)
            of_whom = [f"{few(names)}: {hint}" for hint, names in hints.items()] if len(hints) > 1 else [*hints]
            step = "; ".join(of_whom) or "`wormholectl publishers` shows who has taken over"
            report.add("publishers", Severity.PROBLEM, what, f"{because}; {stands_by}", step, code="log-unowned")
        elif one is None or one.owners.owner is None:
            named = one.group if one is not None and len(logs) > 1 else log
            what = f"log {named} is configured and no publisher serves it"
            step = f"start its monitor, or `wormholectl publisher run --log {log}`"
            report.add("publishers", Severity.PROBLEM, what, because, step, code="no-publisher")


def _standbys(report: Report, seen: Survey, one: Contended) -> None:
    """Report whether another publisher could take the log over."""
    owner = one.owner
    if not owner:
        return  # reported already
    good = True
    for each in one.owners.candidates:
        if why := refusal(each, one.owners) or why_not(each):
            what = f"{each.name} could not take {one.group} over: {why.text}"
            does = "be passed over" if refusal(each, one.owners) else "wait for its patience"
            report.add("standbys", Severity.WARN, what, f"if {owner} ended, it would {does}", why.hint, why.code)
            good = False
    there = {owner, *(each.name for each in one.owners.candidates)}
    drained = {host.name for host in seen.hosts if host.request.drained}
    missing = [name for name in one.expected if name not in there and name.partition("@")[2] not in drained]
    if missing and len(one.expected) > 1:
        what = f"{few(missing)} should stand by for {one.group} and {'is' if len(missing) == 1 else 'are'} not there"
        step = "`wormholectl hosts` shows whether a monitor runs there; its page shows why the publisher does not"
        report.add("standbys", Severity.WARN, what, _FEWER.format(owner), step)
        good = False
    if good and one.owners.candidates:
        # Another candidate may have the owner's name: the owner's process is gone but still registered, and its monitor
        # has started a new process.
        others = [each.name for each in one.owners.candidates if each.name != owner]
        names = few(others or ["another process of its host"])
        report.add("standbys", Severity.OK, f"{owner} owns {one.group}; {names} could take it over")


def _flows(report: Report, statuses: Sequence[admin_pb2.PublisherStatus]) -> None:
    flows = [flow for status in statuses for flow in status.flows]
    if not flows:
        _no_flows(report, statuses)
        return
    conditions = {
        flow.flow: (log_condition(status), flow_condition(status, flow)) for status in statuses for flow in status.flows
    }
    # A fault of a publisher is reported for the publisher, and not again for its flows.
    own = {name: of_flow for name, (of_log, of_flow) in conditions.items() if of_flow != of_log}
    held = {name: one for name, one in own.items() if one.fault and one.state is not State.NEEDS_REPLAY}
    lost = [name for name, one in own.items() if one.state is State.NEEDS_REPLAY]
    paused = [name for name, one in own.items() if one.state is State.PAUSED]
    alone = {name: one for name, one in own.items() if one.state in {State.NO_SUBSCRIBER, State.SUBSCRIBER_AWAY}}
    delivers = [flow for flow in flows if flow.state == "live" and conditions[flow.flow][1].state is State.OK]
    remarks = {
        flow.flow: Condition(State.OK, why.text, why.hint, code=why.code)
        for flow in delivers
        if (why := problem_of(flow))
    }
    parked = [flow.flow for flow in flows if flow.dead_letters]
    short = [flow.flow for flow in flows if flow.HasField("headroom_s") and flow.headroom_s < _LITTLE_HEADROOM_S]
    for one, names in _by_cause(held):
        what = f"held: {few(names)}: {one.cause}"
        report.add("flows", Severity.PROBLEM, what, "they deliver nothing", one.next_step, one.code)
    if lost:
        because = "a replay was given up, and the log no longer holds their datamarkers: they deliver nothing"
        step = f"wormholectl why-lag {lost[0]}"
        report.add("flows", Severity.PROBLEM, f"in need of a replay: {few(lost)}", because, step, code="replay-needed")
    if short:
        because = f"in less than {span(_LITTLE_HEADROOM_S)} the log no longer holds what they need"
        step = f"wormholectl why-lag {short[0]}; keep more of the log meanwhile"
        report.add("flows", Severity.PROBLEM, f"little headroom: {few(short)}", because, step, code="log-kept-short")
    if parked:
        step = f"wormholectl flows dead-letters list {parked[0]}"
        because = "these updates wait for a decision"
        report.add("flows", Severity.WARN, f"with dead letters: {few(parked)}", because, step, code="handler-failed")
    if paused:
        step = f"wormholectl flows resume {paused[0]}, when it is time"
        report.add("flows", Severity.WARN, f"paused: {few(paused)}", "they deliver nothing", step, code="flow-paused")
    for one, names in _by_cause(alone):
        what = f"without a subscriber: {few(names)}: {one.cause}"
        report.add("flows", Severity.WARN, what, "they deliver nothing", one.next_step, one.code)
    for one, names in _by_cause(remarks):
        report.add("flows", Severity.WARN, f"live: {few(names)}: {one.cause}", "", one.next_step, one.code)
    wrong = held or lost or short or parked or paused or alone or remarks
    if not (wrong or any(of_log.fault for of_log, _ in conditions.values())):
        report.add("flows", Severity.OK, "none is held, paused, without a subscriber or short of log")


def _no_flows(report: Report, statuses: Sequence[admin_pb2.PublisherStatus]) -> None:
    explained = why_no_flows(statuses)
    if explained is not None:
        name, found = explained
        if not found.fault:  # a fault is a problem of its publisher already
            report.add("flows", Severity.WARN, f"{name}: {found.cause}", "", found.next_step, found.code)
    elif statuses:
        found = log_condition(statuses[0])
        because = "nothing is delivered; ZooKeeper may have lost its data"
        report.add("flows", Severity.WARN, found.cause, because, found.next_step, found.code)


def _by_cause(conditions: Mapping[str, Condition]) -> Iterator[tuple[Condition, list[str]]]:
    """Each cause with the names of its flows. The condition is that of the first flow, with a step for all flows."""
    found: dict[tuple[State, str], list[str]] = {}
    for name, one in conditions.items():
        found.setdefault(one.one_cause, []).append(name)
    for names in found.values():
        first = conditions[names[0]]
        cause = first.cause if len(names) == 1 else f"{len(names)} flows of one cause, first {names[0]}: {first.cause}"
        yield replace(first, cause=cause, next_step=step_of_all([conditions[name].next_step for name in names])), names


def _pushing(report: Report, seen: Survey) -> None:
    """Report the option that subscribers need with TLS, for each dataset."""
    for dataset in sorted({status.dataset for status in seen.statuses}):
        of_dataset = [one for one in seen.answers if one.status is not None and one.status.dataset == dataset]
        names = sorted({seen.certificates[one.address] for one in of_dataset if one.address in seen.certificates})
        flows = [flow.flow for one in of_dataset if one.status is not None for flow in one.status.flows]
        if names:
            listed = ", ".join(f'"{name}"' for name in names)
            what = (
                f"publishers=[{listed}] (WORMHOLE_PUBLISHERS={','.join(names)}) is the line of the subscribers of "
                f"{dataset}"
            )
            applications = ", ".join(sorted({flow.partition("/")[0] for flow in flows})) or "none yet"
            because = (
                f"applications: {applications}; one with TLS does not start without it; what `wormholectl "
                "replay` pushes with "
                "has to be named as well"
            )
            report.add("who may push", Severity.OK, what, because)


def _certificates(report: Report, tls: TlsReport | None) -> None:
    if tls is None:
        return
    for fact in tls.facts:
        report.add("certificates", Severity.OK, fact)
    for fault in tls.faults:
        step = "replace the file; no process needs a restart"
        report.add("certificates", Severity.PROBLEM, fault, "peers are refused, or refuse this host", step)


def _versions(report: Report, seen: Survey) -> None:
    others = sorted({status.version for status in seen.statuses} - {seen.version})
    if others:
        what = f"publishers run {', '.join(others)}, this command is {seen.version}"
        report.add("versions", Severity.WARN, what, "", "bring all of them to one release, the publishers first")
    elif seen.statuses:
        report.add("versions", Severity.OK, f"all are {seen.version}")


def _clocks(report: Report, clocks: Iterable[ClockReading]) -> None:
    for clock in clocks:
        if clock.ahead_s is None:
            report.add("clock", Severity.WARN, f"that of {clock.name} could not be asked: {clock.problem}")
        elif abs(clock.ahead_s) > _CLOCK_S:
            what = f"that of {clock.name} is {span(abs(clock.ahead_s))} {'ahead' if clock.ahead_s > 0 else 'behind'}"
            report.add(
                "clock", Severity.WARN, what, "lag and rewinds by time are wrong by that", "let NTP set both clocks"
            )
        else:
            report.add("clock", Severity.OK, f"that of {clock.name} agrees")


def _disks(report: Report, disks: Iterable[DiskRoom]) -> None:
    for disk in disks:
        what = f"{size(disk.free)} of {size(disk.total)} free for {disk.path}"
        severity = (
            Severity.PROBLEM if disk.free < _NO_DISK else Severity.WARN if disk.free < _LITTLE_DISK else Severity.OK
        )
        because = "" if severity is Severity.OK else "markers, pinned log files and logs are kept there"
        report.add("disk", severity, what, because, "make room" if because else "")
