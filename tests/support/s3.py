"""A service that speaks S3, on a free loopback port: moto's, which keeps objects in memory and knows conditional
writes; in `make soak` the Versity gateway.

It is a process of its own, because delta-rs waits for answers without letting other threads of the test run.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from scripts.prepare import ROOT
from tests.support.s3_server import BUCKET, S3Server

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["BUCKET", "s3_service"]


@pytest.fixture(scope="session")
def _moto() -> Iterator[str]:
    """Host and port of moto's service."""
    command = [sys.executable, "-m", __name__]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin, process.stdout:
        yield process.stdout.readline().strip()


@pytest.fixture(scope="module")
def s3_service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The query of an ``s3://archives/...`` URL that leads there.

    Credentials are in the environment meanwhile, as an archiver would have them."""
    with pytest.MonkeyPatch.context() as patch:
        if "WORMHOLE_ROUNDS" in os.environ:
            gateway = S3Server(tmp_path_factory.mktemp("s3"))
            for name, value in gateway.environment.items():
                patch.setenv(name, value)
            try:
                yield gateway.to.partition("?")[2]
            finally:
                gateway.kill()
            return
        for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("DEFAULT_REGION", "eu-west-1")):
            patch.setenv(f"AWS_{name}", value)
        yield f"endpoint_override={request.getfixturevalue('_moto')}&scheme=http&region=eu-west-1"


class _OneWriteAtATime:
    """Moto looks for an object and then writes it, so two conditional writes at a time would both succeed."""

    def __init__(self, service: WSGIApplication) -> None:
        self._service = service
        self._writing = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with self._writing if environ["REQUEST_METHOD"] == "PUT" else contextlib.nullcontext():
            return self._service(environ, start_response)


def _serve() -> None:
    """Until the standard input ends."""
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import make_server

    service = _OneWriteAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, service, threaded=True, request_handler=MotoRequestHandler)
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(BUCKET, "eu-west-1")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"127.0.0.1:{server.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
