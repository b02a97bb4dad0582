"""The client of a publisher's admin service: its state, and requests for a change."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TypeVar

import grpc

from wormhole.admin import discovery
from wormhole.admin.blocking import wait_for_result
from wormhole.config import TlsFiles
from wormhole.host.local_admin import LocalAdmin
from wormhole.host.tls import target_options
from wormhole.host.where import Where
from wormhole.model.errors import Fatal, StreamBroken, UsageError
from wormhole.model.problem import Problem
from wormhole.push.refusal import refusal_of, why_unreachable
from wormhole.wire.conditions import why_no_flows
from wormhole.wire.v1 import admin_pb2

__all__ = [
    "Answer",
    "Proven",
    "ask",
    "ask_again",
    "ask_each",
    "audit",
    "change",
    "check_answered",
    "check_application",
    "dead_letters",
    "describe",
    "find",
    "nearest",
    "owner_of",
    "proven",
    "publisher_name",
    "trim_relay",
]

_TIMEOUT_S: Final = 5.0
_CHANGE_TIMEOUT_S: Final = 60.0
"""A change may wait until a subscriber has finished its present work."""
_AT_ONCE: Final = 8
_OPTIONS: Final = [("grpc.max_receive_message_length", 64 << 20)]  # an audit of many flows needs it
_SERVICE: Final = "/wormhole.wire.v1.Admin/"
_ASKED_WRONGLY: Final = frozenset({"NOT_FOUND", "INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED"})
_NOT_POSSIBLE: Final = frozenset({"FAILED_PRECONDITION", "UNIMPLEMENTED", "INTERNAL", "UNKNOWN"})

R = TypeVar("R", bound="_Message")


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802


@dataclass(frozen=True, slots=True)
class Answer:
    """One publisher's ``status``, or the reason why there is none (``problem``).

    ``tls`` and ``tls_name``: as it was reached. ``state_dir``: that of this host's publishers, as far as this side
    knows it. ``drained``: no publisher was called, because an operator stopped them. ``unowned``: none was called,
    because all candidates of a log stand by.
    """

    address: str
    status: admin_pb2.PublisherStatus | None
    problem: str = ""
    tls: TlsFiles | None = None
    tls_name: str = ""
    state_dir: Path = discovery.STATE_DIR
    drained: discovery.Drained | None = None
    unowned: discovery.Unowned | None = None

    @property
    def silent(self) -> bool:
        """Whether a publisher should have answered and did not."""
        return self.status is None and self.drained is None

    def may_have(self, application: str) -> bool:
        """Whether flows of the application may belong to a publisher that does not answer."""
        away = self.drained or self.unowned
        return self.silent if away is None else application in away.applications


def ask(where: Where, flow: str = "") -> list[Answer]:
    """Get the status of every publisher that can be found. ``flow``: only this flow; empty: all flows.

    Raises :class:`~wormhole.model.errors.WormholeError` when none is found or none answers.
    """
    answers = ask_again(find(where), flow)
    check_answered(answers, where)
    return answers


def check_answered(answers: Sequence[Answer], where: Where) -> None:
    """Raise :class:`~wormhole.model.errors.StreamBroken` when no publisher answered."""
    if all(answer.status is None for answer in answers):
        why = Problem(
            "; ".join(answer.problem for answer in answers),
            "check that the publisher runs, its address (admin_listen under [publisher]) and the certificates",
            code="publisher-silent",
        )
        if (drained := answers[0].drained) is not None:
            undo = f"wormholectl drain {drained.host} --undo -c {where.coordinator}"
            why = replace(why, hint=f"`{undo}` when the maintenance is over", code="host-drained")
        if (unowned := answers[0].unowned) is not None:
            why = replace(why, hint=unowned.hint, code="log-unowned")
        raise StreamBroken(why.text, hint=why.hint, code=why.code)


def ask_each(where: Where) -> list[Answer]:
    """:func:`ask`, but without an error if none of the found publishers answers. Only publishers that can be called."""
    return [answer for answer in ask_again(find(where)) if answer.drained is None and answer.unowned is None]


def find(where: Where) -> list[Answer]:
    """Every publisher that can be found, not called yet.

    Raises :class:`~wormhole.model.errors.WormholeError` when there is none.
    """
    config = None if where.publisher else discovery.configured(where)
    tls = where.tls or (None if config is None else config.tls)
    state_dir = discovery.state_dir(where, config)
    found = discovery.publishers(where, config)
    return [
        *(Answer(address, None, "", tls, where.tls_name, state_dir) for address in found.addresses),
        *(Answer("", None, str(one), drained=one) for one in found.drained),
        *(Answer("", None, str(one), unowned=one) for one in found.unowned),
    ]


def ask_again(answers: Sequence[Answer], flow: str = "") -> list[Answer]:
    """Get the status of the same publishers again, several at one time; ``flow`` as in :func:`ask`."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda one: _answer(one, flow), answers))


def _answer(one: Answer, flow: str) -> Answer:
    if one.drained is not None or one.unowned is not None:
        return one
    try:
        return replace(one, status=describe(one.address, one.tls, one.tls_name, flow), problem="")
    except StreamBroken as error:
        return replace(one, status=None, problem=error.message)


def describe(
    address: str, tls: TlsFiles | None = None, tls_name: str = "", flow: str = ""
) -> admin_pb2.PublisherStatus:
    """One publisher's state. Blocks. ``flow``: only this flow; empty: all flows, page by page.

    Raises :class:`~wormhole.model.errors.StreamBroken` when it does not answer.
    """
    answer = Answer(address, None, "", tls, tls_name)
    try:
        status = _call(answer, "Describe", admin_pb2.DescribeRequest(flow=flow), admin_pb2.PublisherStatus)
        while status.more:
            request = admin_pb2.DescribeRequest(after=status.more)
            page = _call(answer, "Describe", request, admin_pb2.PublisherStatus)
            status.flows.extend(page.flows)
            status.more = page.more if page.more > status.more else ""
        return status
    except grpc.RpcError as error:
        raise StreamBroken(
            f"the publisher at {address} does not answer: {_reason(answer, error)}",
            hint="check that it runs, and that its admin address can be dialled from here",
            code="publisher-silent",
        ) from error


def owner_of(answers: Sequence[Answer], flow: str) -> tuple[Answer, admin_pb2.FlowStatus]:
    """The publisher that has the flow, and the flow's status.

    Raises :class:`~wormhole.model.errors.UsageError` with the nearest name when none has it. Raises
    :class:`~wormhole.model.errors.StreamBroken` when a publisher that does not answer may have it, or when a
    publisher's state explains why the flow is not known.
    """
    names: list[str] = []
    for answer in answers:
        for one in () if answer.status is None else answer.status.flows:
            if one.flow == flow:
                return answer, one
            names.append(one.flow)
    silent = [answer for answer in answers if answer.may_have(flow.partition("/")[0])]
    if silent:
        problems = "; ".join(answer.problem for answer in silent)
        hints = (answer.unowned.hint for answer in silent if answer.unowned is not None)
        raise StreamBroken(
            f"no publisher that answers has a flow {flow!r}; {problems}",
            hint=next(hints, "start that publisher"),
            code="publisher-silent",
        )
    _check_known(answers, f"whether there is a flow {flow!r}")
    raise UsageError(
        f"there is no flow {flow!r}", hint=nearest(flow, names, "flow", "wormholectl flows"), code="flow-unknown"
    )


def _check_known(answers: Sequence[Answer], what: str) -> None:
    """Raise :class:`~wormhole.model.errors.StreamBroken` if the state of a publisher that answers explains why ``what``
    is not known.
    """
    found = why_no_flows(answer.status for answer in answers if answer.status is not None)
    if found is not None:
        name, condition = found
        raise StreamBroken(f"{what} is not known: {name}: {condition.cause}", hint=condition.next_step)


def publisher_name(status: admin_pb2.PublisherStatus) -> str:
    """``dataset/copy/log``."""
    return f"{status.dataset}/{status.copy}/{status.log}"


def check_application(answers: Sequence[Answer], application: str) -> None:
    """Raise :class:`~wormhole.model.errors.UsageError` when every publisher answers and none has a flow of the
    application, or :class:`~wormhole.model.errors.StreamBroken` if a publisher's state explains why none has.
    """
    names = {flow.flow.partition("/")[0] for one in answers if one.status is not None for flow in one.status.flows}
    if application not in names and not any(one.may_have(application) for one in answers):
        _check_known(answers, f"whether application {application!r} has a flow")
        raise UsageError(
            f"no publisher has a flow of application {application!r}",
            hint=nearest(application, names, "application", "wormholectl flows"),
            code="flow-unknown",
        )


def nearest(name: str, known: Iterable[str], what: str, command: str) -> str:
    """The known name that a person may have meant by ``name``, in words. ``command`` lists all names."""
    names = sorted(set(known))
    close = (
        difflib.get_close_matches(name, names, n=3, cutoff=0.5) or [one for one in names if name and name in one][:3]
    )
    if close:
        return f"did you mean {' or '.join(close)}? `{command}` lists all"
    return f"`{command}` lists all" if names else f"there is no {what} yet"


def change(answer: Answer, request: admin_pb2.ChangeRequest) -> admin_pb2.ChangeReply:
    """Request a change from the publisher, or its preview (``request.preview``).

    Raises :class:`~wormhole.model.errors.UsageError` for a refused request or credential,
    :class:`~wormhole.model.errors.Fatal` for a change that the flow's state does not allow, and
    :class:`~wormhole.model.errors.StreamBroken` when no answer arrives. The change may then have been made or not.
    """
    return _permitted(answer, "Change", request, admin_pb2.ChangeReply)


def dead_letters(answer: Answer, flow: str, limit: int) -> admin_pb2.DeadLettersReply:
    """Parked updates of one flow, or of all when ``flow`` is empty. Raises as :func:`change`."""
    request = admin_pb2.DeadLettersRequest(flow=flow, limit=limit)
    return _permitted(answer, "DeadLetters", request, admin_pb2.DeadLettersReply)


def audit(answer: Answer, request: admin_pb2.AuditRequest) -> admin_pb2.AuditReply:
    """The delivery counts of flows. Raises as :func:`change`."""
    return _permitted(answer, "Audit", request, admin_pb2.AuditReply)


def trim_relay(answer: Answer, request: admin_pb2.TrimRelayRequest) -> admin_pb2.TrimRelayReply:
    """Remove records of the publisher's relay, or report which would be removed (``request.preview``). Raises as
    :func:`change`.
    """
    return _permitted(answer, "TrimRelay", request, admin_pb2.TrimRelayReply)


@dataclass(frozen=True, slots=True)
class Proven:
    """A publisher whose identity is proven.

    ``local``: the local way that permits changes, ``None`` if a certificate permits them. ``address``: where others may
    dial the publisher and give it a secret.
    """

    local: LocalAdmin | None
    address: str


def proven(answer: Answer) -> Proven:
    """The proven way to give the publisher secrets.

    Raises :class:`~wormhole.model.errors.UsageError` if nothing proves that it is a publisher.
    """
    try:
        with _local(answer) as (_, _, status):
            # A publisher with a certificate proves itself at any address; another one only at the address that it
            # reports.
            return Proven(_way(answer), answer.address if answer.tls is not None else status.admin_address)
    except UsageError as error:
        if answer.tls is None:
            raise _no_proof(answer, error) from None
        return Proven(None, answer.address)


def _permitted(answer: Answer, method: str, request: _Message, reply: type[R]) -> R:
    missing: UsageError | None = None
    try:
        try:
            with _local(answer) as (local, metadata, _):
                return _call(local, method, request, reply, metadata, _CHANGE_TIMEOUT_S)
        except UsageError as error:
            missing = error
        if answer.tls is None:
            raise _no_proof(answer, missing)
        return _call(answer, method, request, reply, (), _CHANGE_TIMEOUT_S)
    except grpc.RpcError as error:
        _refused(answer, error, missing.message if missing else "")


def _way(answer: Answer) -> LocalAdmin:
    assert answer.status is not None
    return LocalAdmin(answer.state_dir, answer.status.dataset, answer.status.copy, answer.status.log)


@contextmanager
def _local(answer: Answer) -> Iterator[tuple[Answer, tuple[tuple[str, str], ...], admin_pb2.PublisherStatus]]:
    """The publisher of ``answer`` over its socket, with the credential for changes, and its status from there.

    Raises :class:`~wormhole.model.errors.UsageError`.
    """
    assert answer.status is not None
    with _way(answer).dial() as (target, token):
        local = Answer(target, None, state_dir=answer.state_dir)
        try:
            found = _call(local, "Describe", admin_pb2.DescribeRequest(), admin_pb2.PublisherStatus)
        except grpc.RpcError as error:
            raise UsageError(f"the publisher at its socket does not answer: {_reason(local, error)}") from error
        if found.pid != answer.status.pid:
            raise UsageError(f"the publisher in {answer.state_dir} is process {found.pid}, not {answer.status.pid}")
        yield local, (("authorization", f"Bearer {token}"),), found


def _no_proof(answer: Answer, why: UsageError) -> UsageError:
    """The error if nothing proves the publisher's identity.

    Only a token of this host is ever sent, and only over a socket of its owner. Otherwise a process that can write
    publishers' addresses could name its own address, and receive the token.
    """
    assert answer.status is not None
    named = f", which names {Path(answer.status.token_file).parent}" if answer.status.token_file else ""
    return UsageError(
        f"nothing shows that {answer.address} is the publisher, so it is given no token: {why.message}",
        hint="run this on the publisher's host as its user, with -c FILE or --state-dir DIR for its state "
        f"folder{named}; "
        "or dial with a certificate that its `admins` lists (--tls-cert, --tls-key, --tls-ca)",
        code="not-permitted",
    )


def _refused(answer: Answer, error: grpc.RpcError, missing: str) -> NoReturn:
    code, problem = refusal_of(error)
    message, hint, known = problem.text, problem.hint, problem.code or None
    if code in {"UNAUTHENTICATED", "PERMISSION_DENIED"} and missing:
        message = f"{message}; {missing}"
    if code in _ASKED_WRONGLY:
        raise UsageError(message or code, hint=hint or None, code=known) from error
    if code == "UNIMPLEMENTED":
        message, hint = f"the publisher at {answer.address} is of a release that cannot do this", "bring it up to date"
        known = "release-too-old"
    if code in _NOT_POSSIBLE:
        hint = hint or "look at the publisher's log, then run the command again"
        raise Fatal(message or code, hint=hint, code=known) from error
    said = _reason(answer, error) if code != "UNAVAILABLE" or not hint else message
    raise StreamBroken(
        f"the publisher at {answer.address} does not answer: {said}",
        hint=hint or "`wormholectl flows` shows what holds now",
        code=known or "publisher-silent",
    ) from error


def _call(
    answer: Answer,
    method: str,
    request: _Message,
    reply: type[R],
    metadata: tuple[tuple[str, str], ...] = (),
    timeout_s: float = _TIMEOUT_S,
) -> R:
    parse: Any = reply
    with _channel(answer) as channel:
        call: grpc.UnaryUnaryMultiCallable[_Message, R] = channel.unary_unary(
            f"{_SERVICE}{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=parse.FromString,
        )
        result: R = call(request, timeout=timeout_s, metadata=metadata or None)
    return result


def _channel(answer: Answer) -> grpc.Channel:
    if answer.tls is None:
        return grpc.insecure_channel(answer.address, options=_OPTIONS)
    from wormhole.host.peer_check import checked_credentials  # here, because its library takes 13 MB
    from wormhole.host.trust import Trust

    options = [*_OPTIONS, *(target_options(answer.tls_name) if answer.tls_name else ())]
    credentials, _ = wait_for_result(checked_credentials(answer.address, Trust(answer.tls)))
    return grpc.secure_channel(answer.address, credentials, options=options)


def _reason(answer: Answer, error: grpc.RpcError) -> str:
    code, problem = refusal_of(error)
    message = problem.text
    if answer.tls is not None and code == "UNAVAILABLE":
        from wormhole.host.peer_check import explain
        from wormhole.host.trust import Trust

        if why := wait_for_result(explain(answer.address, answer.tls_name, Trust(answer.tls))):
            return why
    text = code.lower().replace("_", " ") or type(error).__name__
    return f"{text} ({why_unreachable(message)})" if message else text
