from __future__ import annotations

import pytest

from datastores.mysql.log.dump_errors import dump_error
from wormhole.model.errors import (
    DecodeError,
    Diverged,
    PositionPurged,
    SourceUnavailable,
    UnsupportedLog,
    UsageError,
    WormholeError,
)

READING = 1236
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


# What the servers say; … stands for what does not matter here.
@pytest.mark.parametrize(
    ("message", "kind"),
    [
        # MySQL
        (
            "A replica with the same server_uuid/server_id as this replica has connected to the source; …",
            SourceUnavailable,
        ),
        ("A slave with the same server_uuid as this slave has connected to the master; …", SourceUnavailable),
        ("Cannot replicate because the source purged required binary logs. …", PositionPurged),
        ("Could not find first log file name in binary log index file", PositionPurged),
        ("Replica has more GTIDs than the source has, using the source's SERVER_UUID. …", Diverged),
        ("Client requested source to start replication from position > file size", Diverged),
        ("could not find next log; the first event 'binlog.000002' at 620, …", SourceUnavailable),
        ("log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source; …", UnsupportedLog),
        ("bogus data in log event; …", DecodeError),
        ("binlog truncated in the middle of event; consider out of disk space on source; …", DecodeError),
        ("event read from binlog did not pass crc check; …", DecodeError),
        # MariaDB
        ("… the slave state is too old and required binlog files have been purged.", PositionPurged),
        ("… requested to start from GTID 0-1-17, which is not in the master's binlog", Diverged),
        ("… GTID 0-1-17, which is not in the master's binlog. Since … diverged due to executing extra …", Diverged),
        ("The binlog on the master is missing the GTID 0-1-17 requested by the slave (even though …", Diverged),
        ("Client requested master to start replication from impossible position; …", DecodeError),
    ],
)
def test_why_a_dump_ends(message: str, kind: type[WormholeError]) -> None:
    error = dump_error(READING, message)
    assert type(error) is kind
    assert message in str(error)
    assert error.hint


def test_a_reader_that_another_threw_out_comes_back_and_says_what_to_set() -> None:
    error = dump_error(4052, "A slave with the same server_uuid/server_id is already connected; …")
    assert type(error) is SourceUnavailable
    assert "server_ids" in str(error.hint)


def test_the_missing_transactions_are_named() -> None:
    message = (
        "Cannot replicate because the source purged required binary logs. Replicate the missing transactions "
        "from elsewhere. The GTID set "
        f"sent by the replica is '', and the missing transactions are '{UUID}:1-5:7'."
    )
    error = dump_error(READING, message)
    assert isinstance(error, PositionPurged)
    assert (error.first_missing, error.last_missing) == (f"{UUID}:1-5:7", f"{UUID}:1-5:7")
    error = dump_error(READING, "Could not find first log file name in binary log index file")
    assert isinstance(error, PositionPurged)
    assert (error.first_missing, error.last_missing) == ("", "")


def test_what_helps_against_a_large_event() -> None:
    error = dump_error(READING, "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source; …")
    assert "SET GLOBAL max_allowed_packet" in str(error.hint)


def test_a_reason_that_is_not_known_is_reported_as_it_is() -> None:
    error = dump_error(READING, "the moon is full")
    assert type(error) is UnsupportedLog
    assert "the moon is full (error 1236)" in str(error)


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (1053, "Server shutdown in progress", SourceUnavailable),
        (1227, "Access denied; you need the REPLICATION SLAVE privilege", UsageError),
        (1045, "max_allowed_packet", UsageError),  # the texts are those of 1236 only
    ],
)
def test_other_errors_mean_what_they_mean_anywhere(code: int, message: str, kind: type[WormholeError]) -> None:
    error = dump_error(code, message)
    assert type(error) is kind
    assert "the binlog dump" in str(error)


def test_the_text_of_a_server_is_shown_up_to_a_length() -> None:
    for code in (1236, 1045, 9999):
        assert len(str(dump_error(code, "binlog truncated in the middle of event" * 10_000))) < 1500
