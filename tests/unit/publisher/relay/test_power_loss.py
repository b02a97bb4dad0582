"""A loss of power after each operation on the disk: what was synced is there, and nothing torn is served."""

from __future__ import annotations

from itertools import count

from publisher.relay.files import RelayFiles
from tests.support.relay_disk import FakeDisk, PowerLostError, Survives
from tests.support.relay_journey import Promises, TransactionLog, opened


def go(disk: FakeDisk, promises: Promises) -> None:
    """Write, sync, forget an unfinished transaction, drop, begin behind a hole, start again."""
    parts, markers = promises.log.parts, promises.log.markers
    files = opened(disk)
    files.begin(markers[0])
    for number in range(6):
        files.append(*parts[number])
        if number % 2:
            sync(files, promises)
    files.drop_oldest()
    promises.dropped(files)
    files.append(*parts[6], *parts[7])
    sync(files, promises)
    files.begin(markers[9])  # the one before is missing: a hole
    files.append(*parts[9], *parts[10][:2])
    sync(files, promises)
    files.abandon()
    files.append(*parts[10], *parts[11])
    files.close()
    files = opened(disk)
    files.append(*parts[12], *parts[13])
    sync(files, promises)
    files.close()


def sync(files: RelayFiles, promises: Promises) -> None:
    """Everything that is there is safe from now on."""
    files.sync()
    assert all(stretch.synced == stretch.end for stretch in files.stretches)
    promises.synced(files)


def test_what_was_synced_survives_a_loss_of_power_after_every_operation() -> None:
    log = TransactionLog()
    for number in count():
        promises, disk = Promises(log), FakeDisk(power_lost_at=number)
        try:
            go(disk, promises)
        except PowerLostError:
            for survives in Survives:
                files = opened(disk.after_power_loss(survives))
                promises.check(files)
                files.close()
        else:
            break
    assert number > 40, "the journey has as many operations"
