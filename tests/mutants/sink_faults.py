"""The faults around sinks."""

from __future__ import annotations

from typing import Final

from tests.mutants.runner import Fault

_RECORDS: Final = "tests/unit/sinks/records"
_CHANGES: Final = "tests/unit/sinks/sql/test_changes.py"
_REDIS: Final = "tests/integration/test_redis_rows.py"
_STORE: Final = "tests/contract/test_transactional_store.py"
_NATS: Final = "tests/unit/sinks/nats/test_nats_writer.py"

SINK_FAULTS: list[Fault] = [
    Fault(
        name="records-before-the-end-of-their-transaction",
        file="sinks/records/subscriber.py",
        old="            if last.ends_transaction:\n                await self._complete(name, shard)\n",
        new="            await self._complete(name, shard)\n",
        tests=(f"{_RECORDS}/test_subscriber.py",),
        promise="nothing of a transaction is written before all of it has arrived",
    ),
    Fault(
        name="a-refused-record-is-forgotten",
        file="sinks/records/subscriber.py",
        old="                shard.refused[refused.update_id] = refused\n",
        new="                pass\n",
        tests=(f"{_RECORDS}/test_subscriber.py",),
        promise="the update whose record is refused is parked, and no other",
    ),
    Fault(
        name="confirmed-records-are-not-compared",
        file="sinks/records/confirmed.py",
        old="        if self._left == 0 and self._again.digest() != self._ids.digest():\n            return None\n",
        new="",
        tests=(f"{_RECORDS}/test_confirmed.py",),
        promise="only records that the store has are left out when they come again",
    ),
    Fault(
        name="what-was-confirmed-survives-another-owner",
        file="sinks/records/subscriber.py",
        old="an older place.\n                shard.confirmed.clear()\n",
        new="an older place.\n                pass\n",
        tests=(
            "tests/unit/sinks/webhook/test_webhook.py::test_another_owner_between_two_epochs_voids_what_was_accepted",
        ),
        promise="a process that gets a shard back writes everything behind what another one wrote",
    ),
    Fault(
        name="a-datamarker-before-what-was-sent",
        file="sinks/redis/flows.py",
        old="        await self.confirmed(marker.shard)\n",
        new="",
        tests=(f"{_REDIS}::test_what_was_sent_is_confirmed_before_the_datamarker",),
        promise="a datamarker is acknowledged when the server has everything before it",
    ),
    Fault(
        name="a-truncate-keeps-the-rows-before-it",
        file="sinks/sql/changes.py",
        old="            self.images, self.appends, self.under = {}, {}, {}\n            yield Clear()\n",
        new="            yield Clear()\n",
        tests=(_CHANGES,),
        promise="a mirror holds what the source holds after TRUNCATE",
    ),
    Fault(
        name="the-former-key-stays",
        file="sinks/sql/changes.py",
        old="                self._vacate(old, update)\n",
        new="                pass\n",
        tests=(_CHANGES,),
        promise="a key change leaves one row",
    ),
    Fault(
        name="keys-beyond-the-room-are-forgotten-silently",
        file="sinks/sql/changes.py",
        old="                self.lost = True\n",
        new="",
        tests=(_CHANGES,),
        promise="a mirror that may lack rows is unverified",
    ),
    Fault(
        name="a-key-with-a-row-again-is-taken-for-free",
        file="sinks/sql/changes.py",
        old="            del self._left[key]\n        return known",
        new="            pass\n        return known",
        tests=(_CHANGES,),
        promise="a row that came to a key stays when the row before it leaves",
    ),
    Fault(
        name="an-older-duplicate-stays-behind",
        file="sinks/nats/writer.py",
        old="            if not answer.duplicate or answer.seq > state.last:\n",
        new="            if True:\n",
        tests=(_NATS,),
        promise="the last message of a row in a stream is its last state",
    ),
    Fault(
        name="keys-in-other-partitions-than-java-s",
        file="sinks/kafka/names.py",
        old="0x7FFFFFFF",
        new="0x3FFFFFFF",
        tests=("tests/unit/sinks/kafka/test_kafka.py",),
        promise="a key's records are in the partition in which other producers put them",
    ),
    Fault(
        name="a-halted-flow-keeps-its-locks",
        file="subscriber_sdk/transactional/subscriber.py",
        old="        await self._of(error.shard).revoked()\n        await settled(self._handler.on_error(error))\n",
        new="        await settled(self._handler.on_error(error))\n",
        tests=(f"{_STORE}::test_a_halted_flow_holds_no_lock[sqlalchemy-sqlite-TargetRefused]",),
        promise="the remedy of a halted flow, and other shards of a SQLite file, wait for no lock of it",
    ),
]
