"""The faults around the archive: what is written there, and what merging makes of it."""

from __future__ import annotations

from typing import Final

from tests.mutants.runner import Fault

__all__ = ["ARCHIVE_FAULTS"]

_COMPACT: Final = "tests/unit/spark_replay/archive/test_compact.py"
_BUILDING: Final = "tests/unit/spark_replay/archive/test_building.py"
_ARCHIVER: Final = "tests/unit/spark_replay/archive/test_archiver.py"

ARCHIVE_FAULTS: list[Fault] = [
    Fault(
        name="archiver-acknowledges-before-it-commits",
        file="spark_replay/archive/archiver.py",
        old="            return AckLater(left)\n",
        new="            return None\n",
        tests=(f"{_ARCHIVER}::test_it_is_acknowledged_when_it_is_committed",),
        promise="the log is kept until a manifest names what it held",
    ),
    Fault(
        name="archiver-of-a-former-epoch-commits",
        file="spark_replay/archive/building.py",
        old="        if present.epoch > self.manifest.epoch:\n",
        new="        if not present.epoch:\n",
        tests=(f"{_BUILDING}::test_a_claim_fences_who_came_before",),
        promise="of two archivers of a shard the older cannot commit",
    ),
    Fault(
        name="archive-that-was-set-back-goes-on",
        file="spark_replay/archive/building.py",
        old="        if present is None or present.end.order < self.manifest.end.order:\n",
        new="        if present is None:\n",
        tests=(f"{_BUILDING}::test_an_archive_that_was_set_back_gets_no_hole",),
        promise="no file says that it holds what it lacks",
    ),
    Fault(
        name="hole-behind-a-rollback",
        file="spark_replay/archive/building.py",
        old="            if acknowledged and (present is None or present.end.order < marker.order):\n",
        new="            if not store:\n",
        tests=(f"{_ARCHIVER}::test_an_archive_that_is_set_back_under_it_stops_it",),
        promise="what was acknowledged and is archived no more is told, and no hole comes of it",
    ),
    Fault(
        name="archive-goes-back-after-a-commit-unheard",
        file="spark_replay/archive/building.py",
        old="            if end.order <= self.manifest.end.order:\n",
        new="            if end.order == self.manifest.end.order:\n",
        tests=(f"{_BUILDING}::test_what_was_committed_unheard_never_goes_back",),
        promise="an archive's end only goes forward",
    ),
    Fault(
        name="datamarker-that-came-again-is-committed",
        file="spark_replay/archive/building.py",
        old="        if marker.order > self.manifest.end.order:\n",
        new="        if self.manifest.end.order:\n",
        tests=(f"{_BUILDING}::test_what_was_committed_unheard_never_goes_back",),
        promise="an archive's end only goes forward",
    ),
    Fault(
        name="archive-without-files-cannot-go-on",
        file="spark_replay/archive/building.py",
        old="    if not manifest.files or manifest.files[-1].end.order != manifest.end.order:\n",
        new="    if not epoch:\n",
        tests=(f"{_BUILDING}::test_where_retention_took_every_file_an_empty_one_goes_on",),
        promise="retention never stops an archiver",
    ),
    Fault(
        name="first-pieces-of-a-transaction-twice",
        file="spark_replay/archive/building.py",
        old="    return update.position < end or (update.position == end and not update.in_unfinished)\n",
        new="    return update.position <= end and not update.in_unfinished\n",
        tests=(f"{_BUILDING}::test_what_was_archived_in_pieces_is_passed_over_whole",),
        promise="what comes again although it is archived is not archived twice",
    ),
    Fault(
        name="memory-of-other-shards-is-not-counted",
        file="spark_replay/archive/archiver.py",
        old="        await self._room()\n",
        new="",
        tests=(f"{_ARCHIVER}::test_many_shards_take_no_more_memory_than_one",),
        promise="the archiver's memory is bounded over all shards together",
    ),
    Fault(
        name="rows-that-could-not-be-written-are-forgotten",
        file="spark_replay/archive/archiver.py",
        old="            raise error\n",
        new="            pass\n",
        tests=(f"{_ARCHIVER}::test_a_spill_for_another_shard_that_fails_is_told_to_that_one",),
        promise="what one shard's callback could not write of another is archived all the same",
    ),
    Fault(
        name="newest-file-is-merged",
        file="spark_replay/archive/compact.py",
        old="    for entry in manifest.files[:-1]:\n",
        new="    for entry in manifest.files:\n",
        tests=(f"{_COMPACT}::test_the_newest_file_and_one_alone_stay_as_they_are",),
        promise="merging leaves the file alone whose end the archiver moves",
    ),
    Fault(
        name="merged-over-a-loss",
        file="spark_replay/archive/compact.py",
        old="        adjoins = not run or run[-1].end.order == entry.begin.order\n",
        new="        adjoins = True\n",
        tests=(f"{_COMPACT}::test_no_file_spans_a_range_that_was_lost",),
        promise="no merged file spans a range that was lost",
    ),
    Fault(
        name="merged-without-a-bound",
        file="spark_replay/archive/compact.py",
        old=" or size + entry.bytes > target_bytes):\n",
        new="):\n",
        tests=(f"{_COMPACT}::test_small_files_that_adjoin_become_one_up_to_the_target",),
        promise="a merged file stays below its target",
    ),
    Fault(
        name="merging-loses-datamarkers",
        file="spark_replay/archive/compact.py",
        old="            for marker in file.footer.markers:\n",
        new="            for marker in file.footer.markers[-1:]:\n",
        tests=(f"{_COMPACT}::test_a_merged_file_holds_every_row_datamarker_and_schema",),
        promise="a replay may stop and go on wherever the archiver had a datamarker",
    ),
    Fault(
        name="merging-loses-where-the-log-went-on",
        file="spark_replay/archive/compact.py",
        old="            if entry.end.order > file.footer.end.order:\n",
        new="            if entry.end.order < file.footer.end.order:\n",
        tests=(f"{_COMPACT}::test_where_a_log_went_on_without_updates_stands_in_a_merged_file",),
        promise="datamarkers that only the manifest has are in the merged file",
    ),
    Fault(
        name="merged-in-another-order",
        file="spark_replay/archive/compact.py",
        old="    for entry in group.files:\n        with",
        new="    for entry in reversed(group.files):\n        with",
        tests=(f"{_COMPACT}::test_merged_files_are_merged_again",),
        promise="a merged file has its rows in the order of the log",
    ),
    Fault(
        name="merged-without-a-look",
        file="spark_replay/archive/compact.py",
        old="        _check(group, entry)\n",
        new="",
        tests=(f"{_COMPACT}::test_a_file_that_is_not_what_its_entry_says_is_merged_into_nothing",),
        promise="nothing is replaced by what holds something else",
    ),
    Fault(
        name="merged-over-what-retention-took",
        file="spark_replay/archive/compact.py",
        old="        if manifest is None or not {*names} <= {one.name for one in manifest.files}:\n            raise",
        new="        if manifest is None:\n            raise",
        tests=(f"{_COMPACT}::test_who_comes_too_late_leaves_nothing",),
        promise="who merges too late changes nothing, and says so",
    ),
    Fault(
        name="late-merger-leaves-its-file",
        file="spark_replay/archive/compact.py",
        old="        store.delete_data(group.shard, entry.name)  # no manifest ever named it\n",
        new="",
        tests=(f"{_COMPACT}::test_who_comes_too_late_leaves_nothing",),
        promise="who merges too late leaves no file behind",
    ),
    Fault(
        name="merging-removes-what-readers-hold",
        file="spark_replay/archive/compact.py",
        old='    return replace(result, state="merged", after=entry.bytes)\n',
        new="    for name in names:\n        store.delete_data(group.shard, name)\n"
        '    return replace(result, state="merged", after=entry.bytes)\n',
        tests=(f"{_COMPACT}::test_a_merged_file_holds_every_row_datamarker_and_schema",),
        promise="a job that planned on the old files reads them for a day",
    ),
    Fault(
        name="merged-counts-are-forgotten",
        file="spark_replay/archive/compact.py",
        old="            too_large=sum(one.too_large for one in group.files),\n",
        new="",
        tests=(f"{_COMPACT}::test_a_merged_file_holds_every_row_datamarker_and_schema",),
        promise="auto does not choose latest where values were left out",
    ),
    Fault(
        name="a-block-is-used-before-it-is-compared",
        file="spark_replay/archive/checksums.py",
        old=" or zlib.crc32(block) != self._blocks.of(number):\n",
        new=":\n",
        tests=("tests/system/test_archive_bit_flips.py::test_a_flipped_bit_of_a_data_file_changes_no_row",),
        promise="a flipped bit in a data file is an error that names it, and never another row",
    ),
    Fault(
        name="a-manifest-differs-from-its-checksum",
        file="spark_replay/archive/manifest.py",
        old="        is_sealed(data, where)\n",
        new="",
        tests=("tests/system/test_archive_bit_flips.py::test_a_flipped_bit_of_a_manifest_changes_no_row",),
        promise="a flipped bit in a manifest is an error that names it",
    ),
    Fault(
        name="spark-reads-what-nobody-compared",
        file="spark_replay/archive/reader.py",
        old="        if entry.blocks:\n",
        new="        if not entry.name:\n",
        tests=("tests/unit/spark_replay/test_frames.py::test_a_damaged_file_is_named",),
        promise="snapshot, history and audit compare every byte that they use",
    ),
]
