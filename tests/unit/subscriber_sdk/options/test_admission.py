"""Which publisher is accepted, and which certificate may push which dataset.

Over real connections: tests/hostile/test_malicious_publisher.py.
"""

from __future__ import annotations

import pytest

from subscriber_sdk.options.admission import Admission, publisher_entries
from wormhole.wire.v1 import push_pb2

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
