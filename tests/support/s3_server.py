"""A server of S3 that is a process of its own: the Versity gateway, over a folder.

It knows conditional writes and bucket policies. It is what `PATH` has, else Go builds the pinned release at first use
(a minute) into the user's cache; so it is for soak tests, and `tests.support.s3` for the others.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from scripts.compiled_cache import place
from tests.support.eventually import until
from tests.support.ports import free_port

BUCKET: Final = "archives"
_RELEASE: Final = "v1.8.0"
_MODULE: Final = f"github.com/versity/versitygw/cmd/versitygw@{_RELEASE}"
_REGION: Final = "us-east-1"
_ROOT: Final = ("root", "of-all-buckets")
_USER: Final = ("archiver", "of-one-bucket")
_SLOW: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)


@cache
def _program() -> str:
    if found := shutil.which("versitygw"):
        return found
    folder = place(os.environ).with_name(f"versitygw-{_RELEASE}")
    if not (folder / "versitygw").exists():
        if shutil.which("go") is None:
            pytest.skip(f"no server of S3: install versitygw, or Go, which then runs `go install {_MODULE}`")
        built = subprocess.run(
            ["go", "install", _MODULE], env={**os.environ, "GOBIN": str(folder)}, check=False, stderr=subprocess.PIPE
        )
        if built.returncode:
            pytest.skip(f"no server of S3: go install {_MODULE}: {built.stderr.decode()[-500:]}")
    return str(folder / "versitygw")


class S3Server:
    """``environment``: who an archiver is there; ``to``: the URL of an archive in its bucket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {
            "AWS_ACCESS_KEY_ID": _USER[0],
            "AWS_SECRET_ACCESS_KEY": _USER[1],
            "AWS_DEFAULT_REGION": _REGION,
        }
        self.to = f"s3://{BUCKET}/shop?endpoint_override=127.0.0.1:{self._port}&scheme=http&region={_REGION}"
        for name in ("buckets", "users"):
            (folder / name).mkdir(parents=True)
        self.start()
        try:
            self._root = self._prepared()
        except BaseException:
            self.kill()
            raise
        self.allow("s3:*")

    def _prepared(self) -> Any:
        """The archiver's user and bucket are there; the client of the root user, who made them."""
        there = f"http://127.0.0.1:{self._port}"
        given = ["-a", _ROOT[0], "-s", _ROOT[1], "-er", there, "create-user", "-a", _USER[0], "-s", _USER[1]]
        subprocess.run([_program(), "admin", *given, "-r", "user"], check=True)
        import botocore.session

        root = botocore.session.get_session().create_client(
            "s3",
            endpoint_url=there,
            aws_access_key_id=_ROOT[0],
            aws_secret_access_key=_ROOT[1],
            region_name=_REGION,
        )
        root.create_bucket(Bucket=BUCKET)
        return root

    def start(self) -> None:
        """As it was when it ended."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(_program(), "--port", f"127.0.0.1:{self._port}", "--region", _REGION),
                    *("--iam-dir", str(self._folder / "users"), "--iam-cache-disable"),
                    *("posix", str(self._folder / "buckets")),
                ],
                env={**os.environ, "ROOT_ACCESS_KEY": _ROOT[0], "ROOT_SECRET_KEY": _ROOT[1]},
                stdout=log,
                stderr=log,
            )
        until(self._answers, "the server of S3 does not listen")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False

    def kill(self) -> None:
        """``kill -9``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def allow(self, *actions: str) -> None:
        """What the archiver's user may do in the bucket, and nothing else."""
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": [_USER[0]]},
            "Action": list(actions),
            "Resource": [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"],
        }
        self._root.put_bucket_policy(
            Bucket=BUCKET, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        )

    # -- what goes wrong for as long as the block lasts

    @contextlib.contextmanager
    def killed(self) -> Iterator[None]:
        """It is gone, whatever it was doing."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It takes connections, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def throttled(self) -> Iterator[None]:
        """It answers each request with 503 SlowDown."""
        self.kill()
        server = _Throttling(("127.0.0.1", self._port), _SlowDown)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
            self.start()

    @contextlib.contextmanager
    def forbidden(self) -> Iterator[None]:
        """The archiver's user may still list what is there, and neither read nor write it."""
        self.allow("s3:ListBucket")
        try:
            yield
        finally:
            self.allow("s3:*")


class _Throttling(http.server.ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True


class _SlowDown(http.server.BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(503)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(_SLOW)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(_SLOW)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815 - as http.server calls them

    def log_message(self, *_: object) -> None:
        """Nothing."""
