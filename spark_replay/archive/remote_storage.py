"""Remote storages, which create a file only if it does not exist: S3 by a conditional request, HDFS by moving a folder.

In both the service decides. To read first would not do, because another process can write between a read and a write.
"""

from __future__ import annotations

import secrets
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from pyarrow import fs

from spark_replay.archive.hdfs_files import connect
from spark_replay.archive.storage import Storage, Stored, storage_errors
from wormhole.model.errors import ArchiveConflict, ArchiveError, ArchiveUnavailable, UsageError

__all__ = ["HdfsStorage", "S3Storage"]


class S3Storage(Storage):
    """``s3://bucket/folder?region=…&endpoint_override=…&scheme=…``: pyarrow's own form, also for other services that
    implement S3.

    Credentials are found as the AWS tools find them (environment, ``~/.aws``, instance role). Only a commit needs
    botocore.
    """

    def __init__(self, to: str) -> None:
        with storage_errors("open", to):
            filesystem, root = fs.FileSystem.from_uri(to)
        super().__init__(filesystem, root)
        self._to = to
        self._client: Any = None

    def __reduce__(self) -> tuple[type[S3Storage], tuple[str]]:
        return S3Storage, (self._to,)

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """See :meth:`~spark_replay.archive.storage.Storage.create_if_absent`: ``PUT`` with ``If-None-Match: *``."""
        client = self._connected()
        import botocore.exceptions as failures

        bucket, _, key = self.path(name).partition("/")
        where = f"s3://{bucket}/{key}"
        try:
            client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
        except failures.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status == 412:
                return False
            if status == 409:
                raise ArchiveConflict(f"{where} is being written by another process just now") from error
            if status == 501:
                raise ArchiveError(
                    f"the service does not know the condition If-None-Match: {where} cannot be committed safely",
                    hint="use a service with conditional writes: Amazon S3, MinIO, Ceph (Squid or later)",
                    code="archive-misplaced",
                ) from error
            if status in {401, 403, 404}:
                raise ArchiveError(
                    f"cannot write {where}: {code}",
                    hint="look at the bucket's name and at who may put objects there",
                    code="archive-refused",
                ) from error
            raise ArchiveUnavailable(f"cannot write {where}: {code} ({status})", hint="try again later") from error
        except failures.NoCredentialsError as error:
            raise ArchiveError(
                f"cannot write {where}: no credentials were found",
                hint="give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials or an instance role",
                code="archive-refused",
            ) from error
        except failures.BotoCoreError as error:
            raise ArchiveUnavailable(f"cannot write {where}: {error}", hint="see whether it can be reached") from error
        return True

    def _connected(self) -> Any:
        """The client. It is safe for threads. If two threads make one at the same time, either may be used."""
        if self._client is None:
            try:
                import botocore.config
                import botocore.session
            except ModuleNotFoundError as error:
                raise UsageError(
                    "writing an archive to S3 needs botocore, which is not installed",
                    hint="pip install 'wormhole-pubsub[s3]'",
                    code="extra-missing",
                ) from error
            given = parse_qs(urlsplit(self._to).query)
            endpoint = given.get("endpoint_override", [""])[0]
            if endpoint and "://" not in endpoint:
                endpoint = f"{given.get('scheme', ['https'])[0]}://{endpoint}"
            self._client = botocore.session.get_session().create_client(
                "s3",
                region_name=self.filesystem.region,
                endpoint_url=endpoint or None,
                config=botocore.config.Config(
                    connect_timeout=10,
                    read_timeout=60,
                    retries={"mode": "standard", "max_attempts": 3},
                    s3={"addressing_style": "path"} if endpoint else None,
                ),
            )
        return self._client


_CONTENT: Final = "content"


class HdfsStorage(Storage):
    """``hdfs://host:port/folder``, or ``hdfs://nameservice/folder`` of Hadoop's configuration (``HADOOP_CONF_DIR``).

    A small file is stored as a folder that contains it. The folder gets its name by a move, which the name node refuses
    if the name exists. The name node executes one move after the other.
    """

    def __init__(self, to: str, filesystem: fs.FileSystem | None = None) -> None:
        parts = urlsplit(to)
        if filesystem is None:
            with storage_errors("open", to):
                filesystem = connect(f"hdfs://{parts.netloc}")
        super().__init__(filesystem, parts.path)
        self._to = to

    def __reduce__(self) -> tuple[type[HdfsStorage], tuple[str]]:
        return HdfsStorage, (self._to,)

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """See :meth:`~spark_replay.archive.storage.Storage.create_if_absent`."""
        above, own = name.rpartition("/")[0], f".{secrets.token_hex(6)}"
        made = self.path(f"{above}/{own}" if above else own)
        with storage_errors("write", self.path(name)):
            with self.filesystem.open_output_stream(f"{made}/{_CONTENT}") as stream:
                stream.write(data)
            try:
                self.filesystem.move(made, self.path(name))
            except FileExistsError:
                self.filesystem.delete_dir(made)
                return False
            except FileNotFoundError:
                # The client repeats a request if its answer was lost. The caller compares the bytes to find the owner.
                if self.filesystem.get_file_info(self.path(name)).type == fs.FileType.NotFound:
                    raise
                return False
        return True

    def replace(self, name: str, data: bytes) -> None:
        """See :meth:`~spark_replay.archive.storage.Storage.replace`."""
        made = self.path(f"{name}/.{secrets.token_hex(6)}")
        with storage_errors("write", self.path(name)):
            with self.filesystem.open_output_stream(made) as stream:
                stream.write(data)
            self.filesystem.handler.move_over(made, self.path(f"{name}/{_CONTENT}"))

    def read(self, name: str) -> bytes | None:
        """See :meth:`~spark_replay.archive.storage.Storage.read`."""
        return super().read(f"{name}/{_CONTENT}")

    def files(self, folder: str) -> list[Stored]:
        """See :meth:`~spark_replay.archive.storage.Storage.files`: data files, and small files, which are folders."""
        return sorted(
            (Stored(one.base_name, one.size or 0, (one.mtime_ns or 0) // 10**9) for one in self._listed(folder)),
            key=lambda one: one.name,
        )

    def delete(self, name: str) -> None:
        """See :meth:`~spark_replay.archive.storage.Storage.delete`."""
        with storage_errors("delete", self.path(name)):
            if self.filesystem.get_file_info(self.path(name)).type != fs.FileType.Directory:
                super().delete(name)
                return
            self.filesystem.delete_dir(self.path(name))
