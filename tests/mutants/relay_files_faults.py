"""Faults in what a relay's files promise: after a loss of power, beside damage, and of markers of another log."""

from __future__ import annotations

from tests.mutants.runner import Fault

_FILES = ("tests/unit/publisher/relay/test_relay_files.py",)
_POWER = ("tests/unit/publisher/relay/test_power_loss.py",)
_DISK = ("tests/unit/publisher/relay/test_relay_disk_errors.py",)
_STORED = ("tests/compatibility/test_stored_forms.py",)
_RECORD = ("tests/property/test_relay_record.py",)

RELAY_FILES_FAULTS: list[Fault] = [
    Fault(
        name="relay-index-before-the-sync",
        file="publisher/relay/one_file.py",
        old="        if sync:\n            self.handle.sync()\n",
        new="",
        tests=_POWER,
        promise="what was synced of a relay file survives, whatever is written behind it",
    ),
    Fault(
        name="relay-folder-not-synced",
        file="publisher/relay/files.py",
        old="            if not self._listed:\n                self._disk.sync_folder(self._folder)\n",
        new="            pass\n",
        tests=_POWER,
        promise="a new relay file survives a loss of power before anything is confirmed",
    ),
    Fault(
        name="relay-file-not-synced-after-its-index",
        file="publisher/relay/files.py",
        old="            unsynced = [file for file in self._files if file.unsynced]\n",
        new="            unsynced = [file for file in self._files if file.handle is not None]\n",
        tests=_POWER,
        promise="a relay file that was read from another process is synced before anything is confirmed",
    ),
    Fault(
        name="relay-trusts-a-file-after-a-failed-sync",
        file="publisher/relay/files.py",
        old='                self._lose(file, f"it cannot be synced: {error.strerror}")\n            else:\n',
        new="            else:\n",
        tests=_DISK,
        promise="a relay file whose sync failed is never trusted again",
    ),
    Fault(
        name="relay-serves-an-unfinished-transaction",
        file="publisher/relay/files.py",
        old="            if segment.marker is None:\n",
        new="            file.readable = block.after\n            if segment.marker is None:\n",
        tests=_FILES,
        promise="a transaction is read from the relay when it is there whole",
    ),
    Fault(
        name="relay-checksum-ignored",
        file="publisher/relay/file_format.py",
        old=(
            '        raise DecodeError("the checksum of the record there is wrong", code="relay-damaged")\n'
            "    if block.flags"
        ),
        new="        pass\n    if block.flags",
        tests=_FILES,
        promise="nothing damaged is delivered from a relay",
    ),
    Fault(
        name="relay-takes-another-checksum-for-proof",
        file="publisher/relay/record.py",
        old="    if any(border is not None and border.id == anchor.id for border in borders):\n        return False\n",
        new="",
        tests=_FILES,
        promise="a marker of a log that was restored and written anew is not served from the relay",
    ),
    Fault(
        name="relay-serves-a-marker-without-proof",
        file="publisher/relay/record.py",
        old="    return last.id == anchor.id and (not known",
        new="    return (not known",
        tests=(*_FILES, *_RECORD),
        promise="a marker of another log is not served from the relay",
    ),
    Fault(
        name="relay-merges-over-a-gap",
        file="publisher/relay/record.py",
        old="        and segment.gap is None\n",
        new="",
        tests=_RECORD,
        promise="a gap of the log is told by the relay too",
    ),
    Fault(
        name="relay-cut-keeps-one-transaction-too-many",
        file="publisher/relay/record.py",
        old="            runs[shard] = _behind(run, transaction, ordinal) if transaction else run\n",
        new="            runs[shard] = run\n",
        tests=_RECORD,
        promise="a reader inside a record gets nothing twice",
    ),
    Fault(
        name="relay-identity-stored-under-another-name",
        file="publisher/relay/file_format.py",
        old='        "max_update_bytes": identity.max_update_bytes,\n',
        new='        "largest_update": identity.max_update_bytes,\n',
        tests=_STORED,
        promise="relay files of an earlier release are read",
    ),
    Fault(
        name="lost-keys-of-another-identity",
        file="publisher/relay/lost_key_files.py",
        old='f"RelayIdentity(log=',
        new='f"Identity(log=',
        tests=_STORED,
        promise="keys of lost relay files of an earlier release are read",
    ),
]
