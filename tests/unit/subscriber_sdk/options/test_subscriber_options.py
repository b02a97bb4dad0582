"""Options from arguments and environment; every problem names its option."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from subscriber_sdk.options.subscriber_options import Options, RetryPolicy, SubscriberOptions, read_options
from wormhole.config import TlsFiles
from wormhole.coordination.port import Coordinator
from wormhole.model.errors import ConfigError, UsageError


def _hints(kind: type) -> dict[str, Any]:
    # The module imports the class of `tls` for type checkers only.
    return get_type_hints(kind, localns={"TlsFiles": TlsFiles})


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


# --- what type checkers know of the options ---

TLS = TlsFiles(cert=Path("a.pem"), key=Path("b.pem"), ca=Path("c.pem"))
ACCEPTED: dict[str, list[object]] = {
    "coordinator": ["zk:2181/x", Path("shop.toml")],
    "listen": ["127.0.0.1:7000"],
    "advertise": ["host:7000"],
    "id": ["one"],
    "weight": [2.5],
    "tls": ["a.pem,b.pem,c.pem", TLS, None],
    "publishers": ["db1,db2", ["db1", "shop=db2"], {"shop": "db1", "users": ["db2"]}],
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
    for name, hint in accepted.items():
        assert members(read[name]) <= members(hint), name


@pytest.mark.parametrize(("name", "hint"), _hints(SubscriberOptions).items())
def test_every_type_that_they_accept_is_read(name: str, hint: Any) -> None:
    for kind in members(hint) - {Coordinator}:
        assert any(isinstance(value, get_origin(kind) or kind) for value in ACCEPTED[name]), kind
    for value in ACCEPTED[name]:
        with_it = {"tls": TLS, "publishers": ["db1"]} if value and name in {"tls", "publishers"} else {}
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
        ({"tls": "only-one.pem"}, "certificate,key,authority"),
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
