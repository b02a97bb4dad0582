"""Schemas, values, and what a datastore is capable of."""

from __future__ import annotations

import copy
import hashlib
import pickle

import pytest
from google.protobuf.message import DecodeError

from wormhole.model.capabilities import Capabilities
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op

# --- A schema's id is a hash of its content, the same everywhere


USERS = Schema("shop.users", (Column("id", "int"),), (Column("email", "text"), Column("born", "decimal")))


def test_the_canonical_bytes_come_back() -> None:
    assert Schema.from_canonical(USERS.canonical) == USERS
    assert Schema.from_canonical(Schema("", (), ()).canonical) == Schema("", (), ())


def test_the_id_is_the_documented_hash_and_stays_the_same_between_releases() -> None:
    assert USERS.id == int.from_bytes(hashlib.sha256(USERS.canonical).digest()[:8], "big")
    assert USERS.canonical.hex() == (
        "0a0a73686f702e757365727312090a0269641203696e741a0d0a05656d61696c1204746578741a0f0a04626f726e1207646563696d616c"
    )


def test_whatever_differs_differs_in_the_id() -> None:
    others = [
        Schema("shop.orders", USERS.key, USERS.columns),
        Schema(USERS.table, (), USERS.columns),
        Schema(USERS.table, USERS.key, USERS.columns[::-1]),
        Schema(USERS.table, (Column("id", "uint"),), USERS.columns),
        Schema(USERS.table, USERS.columns, USERS.key),
    ]
    assert len({schema.id for schema in (USERS, *others)}) == len(others) + 1


def test_other_bytes_are_refused() -> None:
    with pytest.raises(DecodeError):
        Schema.from_canonical(b"\xff\xff")


# --- Absent is not null, and nobody may test it for truth by accident


def test_unavailable_has_no_truth() -> None:
    with pytest.raises(TypeError, match="is UNAVAILABLE"):
        bool(UNAVAILABLE)
    assert repr(UNAVAILABLE) == "UNAVAILABLE"


def test_unavailable_stays_the_one_object() -> None:
    assert copy.deepcopy(UNAVAILABLE) is UNAVAILABLE
    assert pickle.loads(pickle.dumps(UNAVAILABLE)) is UNAVAILABLE


def test_operations_are_written_as_in_filters() -> None:
    assert all(op.value == op.name.lower() for op in Op)


# --- capabilities


def test_a_datastore_without_capabilities_of_its_own_has_all() -> None:
    default = Capabilities()
    assert default.row_before
    assert set(default.ops) == set(Op)
    assert not default.of_bytes
    assert not default.databases
