"""``DjangoStore``: models within a shard's transaction, from any thread."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest
from django.db import IntegrityError, connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F

from subscriber_sdk import NoticeKind, ShardNotice
from subscriber_sdk.testing import marker_at
from subscriber_sdk.transactional.shard import ShardTransactions
from subscriber_sdk.transactional.store import finish
from tests.support.transactional import STORES, Target

ASSIGNED = ShardNotice(NoticeKind.ASSIGNED, "s", 1, marker_at(0), application="a")
DJANGO = pytest.mark.parametrize("transactional_target", [name for name in STORES if "django" in name], indirect=True)


@cache
def table() -> Any:
    """The model of ``totals``. Django has to be set up before it."""

    class Total(models.Model):
        customer: models.IntegerField[int, int] = models.IntegerField(primary_key=True)
        amount: models.IntegerField[int, int] = models.IntegerField()

        class Meta:
            app_label = "tests"
            db_table = "totals"

    return Total


def in_a_thread(work: Coroutine[Any, Any, Any]) -> None:
    """Each call in another thread, as the SDK calls plain ``def`` callbacks."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(finish, work).result()


@DJANGO
def test_models_use_the_transaction_of_the_shard(transactional_target: Target) -> None:
    target, committed = transactional_target, []
    shard = ShardTransactions(target.new(), "s")
    target.sql("INSERT INTO totals VALUES (1, 0)")

    def add(connection: BaseDatabaseWrapper) -> None:
        assert connections["default"] is connection
        transaction.on_commit(lambda: committed.append(1))
        table().objects.filter(customer=1).update(amount=F("amount") + 1)

    def add_and_undo(connection: BaseDatabaseWrapper) -> None:
        add(connection)
        with contextlib.suppress(IntegrityError), transaction.atomic():
            table().objects.filter(customer=1).update(amount=F("amount") + 10)
            table().objects.create(customer=1, amount=1)

    in_a_thread(shard.assigned(ASSIGNED))
    in_a_thread(shard.call(add))
    in_a_thread(shard.call(add_and_undo))
    assert (target.totals, committed) == ({1: 0}, [])
    in_a_thread(shard.commit(marker_at(1)))
    assert (target.totals, committed) == ({1: 2}, [1, 1])
    in_a_thread(shard.call(add))
    in_a_thread(shard.rolled_back(marker_at(1)))
    in_a_thread(shard.revoked())
    assert (target.totals, committed) == ({1: 2}, [1, 1])


@DJANGO
def test_a_handler_cannot_commit_through_django(transactional_target: Target) -> None:
    shard = ShardTransactions(transactional_target.new(), "s")
    in_a_thread(shard.assigned(ASSIGNED))
    with pytest.raises(transaction.TransactionManagementError):
        in_a_thread(shard.call(lambda connection: connection.commit()))
    in_a_thread(shard.revoked())
