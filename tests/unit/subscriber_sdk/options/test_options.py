"""Options from arguments and environment, and which publishers and certificates are accepted."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from subscriber_sdk.options.admission import Admission, publisher_entries
from subscriber_sdk.options.subscriber_options import Options, RetryPolicy, SubscriberOptions, read_options
from wormhole.config import TlsAuthority, TlsFiles
from wormhole.coordination.port import Coordinator
from wormhole.model.errors import ConfigError, UsageError
from wormhole.wire.v1 import push_pb2

# --- subscriber options: options from arguments and environment; every problem names its option ---


def _hints(kind: type) -> dict[str, Any]:
    # The module imports the classes of `tls` for type checkers only.
    return get_type_hints(kind, localns={"TlsAuthority": TlsAuthority, "TlsFiles": TlsFiles})


GIVEN = {"application": "app", "coordinator": "zk:2181/x"}


def test_arguments_win_over_the_environment() -> None:
    environ = {"WORMHOLE_CREDIT": "1MiB", "WORMHOLE_CONCURRENCY": "3"}
    options = read_options({**GIVEN, "credit": "2MiB"}, environ)
    assert (options.credit, options.concurrency) == (2 << 20, 3)


def test_every_option_can_stand_in_the_environment() -> None:
    environ = {
        "WORMHOLE_APPLICATION": "app",
        "WORMHOLE_COORDINATOR": "zk:2181/x",
        "WORMHOLE_LISTEN": "127.0.0.1:7000",
        "WORMHOLE_ADVERTISE": "host:7000",
        "WORMHOLE_ID": "one",
        "WORMHOLE_WEIGHT": "2.5",
        "WORMHOLE_TLS": "a.pem, b.pem, c.pem",
        "WORMHOLE_PUBLISHERS": "db1, db2",
        "WORMHOLE_INSECURE": "true",
        "WORMHOLE_CONCURRENCY": "4",
        "WORMHOLE_HANDLER_TIMEOUT": "1m",
        "WORMHOLE_STOP_TIMEOUT": "5",
        "WORMHOLE_RETRY": "3",
        "WORMHOLE_CREDIT": "1MiB",
        "WORMHOLE_BUFFER": "1048576",
        "WORMHOLE_MAX_FRAME": "8MiB",
        "WORMHOLE_MAX_UPDATE": "1MiB",
        "WORMHOLE_MAX_STATE": "8MiB",
    }
    assert read_options({}, environ) == Options(
        application="app",
        coordinator="zk:2181/x",
        listen="127.0.0.1:7000",
        advertise="host:7000",
        id="one",
        weight=2.5,
        tls=TlsFiles(cert=Path("a.pem"), key=Path("b.pem"), ca=Path("c.pem")),
        publishers=("db1", "db2"),
        insecure=True,
        concurrency=4,
        handler_timeout=60.0,
        stop_timeout=5.0,
        retry=RetryPolicy(attempts=3),
        credit=1 << 20,
        buffer=1 << 20,
        max_frame=8 << 20,
        max_update=1 << 20,
        max_state=8 << 20,
    )


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORMHOLE_ID", "from-environment")
    assert read_options(GIVEN).instance == "from-environment"


def test_an_instance_has_a_name_of_its_own() -> None:
    assert read_options(GIVEN, {}).instance == f"{socket.gethostname()}-{os.getpid()}"


def test_a_wrong_name_is_answered_with_the_nearest_right_one() -> None:
    with pytest.raises(UsageError) as raised:
        read_options({**GIVEN, "handler_timout": 5}, {})
    assert raised.value.text == 'there is no option "handler_timout"; did you mean "handler_timeout"?'
    with pytest.raises(UsageError, match=r'no option "colour"; known are advertise, .*, weight \['):
        read_options({**GIVEN, "colour": "red"}, {})


def test_a_token_takes_the_place_of_a_certificate_and_is_never_shown() -> None:
    environ = {"WORMHOLE_TOKEN": "wormhole_secret", "WORMHOLE_TLS": "ca.pem,crl.pem", "WORMHOLE_DIAL": "db-1:7491"}
    options = read_options({**GIVEN, "publishers": "db1"}, environ)
    assert options.tls == TlsAuthority(ca=Path("ca.pem"), crl=Path("crl.pem"))
    assert not options.lasting
    assert "wormhole_secret" not in repr(options)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"token": "wormhole_secret", "coordinator": "", "listen": "127.0.0.1:7000"}, "dial"),
        ({"tls": "ca.pem", "publishers": "db1", "dial": "db-1:7491"}, "certificate"),
        ({"token": "wormhole_secret\n", "dial": "db-1:7491"}, "token"),
        ({"token": b"wormhole_secret", "dial": "db-1:7491"}, "token"),
        ({"token": "wormhole_secret" * 9, "dial": "db-1:7491"}, "token"),
    ],
)
def test_a_wrong_token_is_named_and_not_shown(given: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigError, match=names) as refused:
        read_options({**GIVEN, **given}, {})
    assert "secret" not in str(refused.value)


# --- what type checkers know of the options ---

TLS = TlsFiles(cert=Path("a.pem"), key=Path("b.pem"), ca=Path("c.pem"))
ACCEPTED: dict[str, list[object]] = {
    "coordinator": ["zk:2181/x", Path("shop.toml")],
    "listen": ["127.0.0.1:7000"],
    "advertise": ["host:7000"],
    "id": ["one"],
    "weight": [2.5],
    "tls": ["a.pem,b.pem,c.pem", TLS, TlsAuthority(ca=Path("c.pem")), None],
    "publishers": ["db1,db2", ["db1", "shop=db2"], {"shop": "db1", "users": ["db2"]}],
    "dial": ["127.0.0.1:7490", ["127.0.0.1:7490", "[::1]:7490"]],
    "token": ["wormhole_x"],
    "insecure": [True],
    "concurrency": [4],
    "handler_timeout": [5.0, "1m"],
    "stop_timeout": [5.0, "1m"],
    "retry": [RetryPolicy(attempts=3), 3, None],
    "credit": [4096, "1MiB"],
    "buffer": [4096, "1MiB"],
    "max_frame": [4096, "1MiB"],
    "max_update": [4096, "1MiB"],
    "max_state": [4096, "1MiB"],
}
"""A value for each type."""


def members(hint: Any) -> set[Any]:
    return set(get_args(hint)) if get_origin(hint) in {Union, UnionType} else {hint}


def test_type_checkers_know_every_option() -> None:
    accepted, read = _hints(SubscriberOptions), _hints(Options)
    assert list(accepted) == [name for name in read if name != "application"]
    assert members(accepted.pop("publishers")) >= {Collection[str]}  # read as a tuple
    assert members(accepted.pop("dial")) == {str, Collection[str]}
    for name, hint in accepted.items():
        assert members(read[name]) <= members(hint), name


@pytest.mark.parametrize(("name", "hint"), _hints(SubscriberOptions).items())
def test_every_type_that_they_accept_is_read(name: str, hint: Any) -> None:
    for kind in members(hint) - {Coordinator}:
        assert any(isinstance(value, get_origin(kind) or kind) for value in ACCEPTED[name]), kind
    for value in ACCEPTED[name]:
        with_it: dict[str, object] = (
            {"tls": TLS, "publishers": ["db1"]} if value and name in {"tls", "publishers"} else {}
        )
        if isinstance(value, TlsAuthority) or name == "token":
            with_it |= {"dial": "127.0.0.1:7490", "token": "wormhole_x"}
        read_options({**GIVEN, **with_it, name: value}, {})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"application": ""}, 'application = ""'),
        ({"concurrency": 0}, "concurrency = 0: a whole number from 1 on is needed, for example 8"),
        ({"concurrency": "many"}, "concurrency = 'many': a whole number from 1 on is needed, for example 8"),
        ({"concurrency": 2.5}, "concurrency = 2.5: a whole number from 1 on is needed, for example 8"),
        ({"concurrency": True}, "concurrency = True: a whole number"),
        ({"credit": 0}, "credit = 0"),
        ({"max_frame": 4095}, "max_frame = 4095"),
        ({"credit": "4 bananas"}, "credit = '4 bananas'"),
        ({"handler_timeout": 0}, "handler_timeout = 0"),
        ({"handler_timeout": "soon"}, "handler_timeout = 'soon'"),
        ({"weight": float("nan")}, "weight = nan"),
        ({"weight": 1e308}, "weight = 1e+308: a number from 1e-09 to 1e+09"),
        ({"listen": "nowhere"}, 'listen = "nowhere"'),
        ({"listen": ":7000"}, 'listen = ":7000"'),
        ({"listen": "0.0.0.0:7000"}, "set advertise"),
        ({"listen": "[::]:7000"}, "set advertise"),
        ({"coordinator": ""}, "no publisher could learn the port"),
        ({"publishers": ["db1"]}, "publishers is set without tls"),
        ({"tls": "c.pem,k.pem,ca.pem"}, 'add publishers=["NAME"] (WORMHOLE_PUBLISHERS=NAME)'),
        ({"tls": "c.pem,k.pem,ca.pem", "publishers": ["shop="]}, "DATASET=NAME"),
        ({"tls": "c.pem,k.pem,ca.pem", "publishers": 7}, "publishers = 7"),
        ({"insecure": "perhaps"}, "insecure = 'perhaps'"),
        ({"tls": "a.pem,b.pem,c.pem,d.pem,e.pem"}, "certificate,key,authority"),
        ({"retry": "often"}, "retry = 'often'"),
        ({"retry": 2.5}, "retry = 2.5: a RetryPolicy or a number"),
        ({"listen": 7000}, "listen = 7000: text is needed"),
        ({"coordinator": 7}, "coordinator = 7: servers and root"),
    ],
)
def test_a_problem_names_its_option(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_options({**GIVEN, **given}, {})
    assert named in str(raised.value)


def test_all_problems_come_at_once() -> None:
    with pytest.raises(ConfigError, match=r"concurrency = 0.*weight = -1"):
        read_options({**GIVEN, "concurrency": 0, "weight": -1}, {})


def test_a_coordinator_object_needs_no_fixed_port() -> None:
    assert read_options({"application": "app"}, {}, shared=True).listen == "127.0.0.1:0"


# --- admission: which publisher is accepted, and which certificate may push which dataset ---


Goodbye = push_pb2.Goodbye
DB1, DB2 = {"db1", "db1.internal"}, {"db2"}


def admission(*publishers: str, dataset: str = "shop") -> Admission:
    return Admission("app", "one", publishers, dataset)


def hello(**fields: object) -> push_pb2.Hello:
    given: dict[str, object] = {"min_version": 1, "max_version": 2, "application": "app", "dataset": "shop", **fields}
    return push_pb2.Hello(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "reason", "named"),
    [
        ({}, None, ""),
        ({"subscriber": "one"}, None, ""),
        ({"max_version": 9}, None, ""),
        ({"min_version": 3, "max_version": 4}, Goodbye.VERSION, "versions 3 to 4"),
        ({"application": "other"}, Goodbye.WRONG_ADDRESS, "other/ was meant"),
        ({"subscriber": "two"}, Goodbye.WRONG_ADDRESS, "app/two was meant"),
    ],
)
def test_who_is_meant(fields: dict[str, object], reason: Goodbye.Reason | None, named: str) -> None:
    refusal = admission().refuses_hello(hello(**fields), (1, 2))
    if reason is None:
        assert refusal is None
        return
    assert refusal is not None
    assert refusal[0] == reason
    assert named in refusal[1]
    assert refusal[2]


@pytest.mark.parametrize(("ours", "older"), [((3, 4), "publisher"), ((0, 0), "subscriber")])
def test_without_a_common_version_both_ranges_and_the_older_side_are_named(ours: tuple[int, int], older: str) -> None:
    assert admission().refuses_hello(hello(publisher="shop/main/db1@h:7"), ours) == (
        Goodbye.VERSION,
        (
            f"publisher shop/main/db1@h:7 speaks protocol versions 1 to 2, subscriber app/one {ours[0]} to {ours[1]}: "
            "they have none in common"
        ),
        f"upgrade wormhole-pubsub of the {older}, the older side, first (docs/upgrade.md)",
    )


@pytest.mark.parametrize("publishers", [("db1",), ("db1.internal",), ("shop=db1",), ("other", "shop=db1")])
def test_a_publisher_that_is_named_may_push(publishers: tuple[str, ...]) -> None:
    assert admission(*publishers).refuses_certificate(DB1) is None
    assert admission(*publishers).refuses_dataset(DB1, "shop") is None


def test_another_certificate_is_refused_with_both_names() -> None:
    for refusal in (admission("db1").refuses_certificate(DB2), admission("db1").refuses_dataset(DB2, "shop")):
        assert refusal is not None
        reason, message, hint = refusal
        assert reason == Goodbye.NOT_ALLOWED
        assert "names db2 may not push" in message
        assert "app/one takes it from db1" in message
        assert "WORMHOLE_PUBLISHERS" in hint


def test_a_publisher_of_another_dataset_is_refused_whatever_dataset_it_names() -> None:
    both = admission("shop=db1", "users=db2")
    assert both.refuses_certificate(DB2) is None
    refused = both.refuses_dataset(DB2, "shop")
    assert refused is not None
    assert "names db2 may not push dataset shop here" in refused[1]
    honest = both.refuses_dataset(DB2, "users")
    assert honest is not None
    assert honest[0] == Goodbye.WRONG_ADDRESS
    assert "for dataset shop" in honest[1]
    assert both.refuses_dataset(DB2, "") is not None


def test_without_certificates_only_a_dataset_that_is_named_counts() -> None:
    for dataset in ("", "shop"):
        assert admission().refuses_dataset((), dataset) is None
    assert admission().refuses_certificate(()) is None
    assert admission().refuses_dataset((), "users") is not None
    assert admission(dataset="").refuses_dataset((), "users") is None


def test_a_long_list_is_cut() -> None:
    refusal = admission(*(f"db{i}" for i in range(20))).refuses_certificate({f"name{i}" for i in range(100)})
    assert refusal is not None
    assert "and 92 more may not push here" in refusal[1]
    assert refusal[1].endswith("and 12 more")


@pytest.mark.parametrize(
    ("given", "entries"),
    [
        ("db1, users=db2,", ("db1", "users=db2")),
        (["db1"], ("db1",)),
        ({"shop": ["db1", "db2"], "users": "db9"}, ("shop=db1", "shop=db2", "users=db9")),
    ],
)
def test_forms_of_the_option(given: object, entries: tuple[str, ...]) -> None:
    assert publisher_entries(given) == entries


@pytest.mark.parametrize("given", ["shop=", "=db1", [1], 7, None])
def test_other_forms_are_refused(given: object) -> None:
    with pytest.raises(ValueError, match=r"lacks a name|no list of names"):
        publisher_entries(given)
