"""A service that speaks S3, on a free loopback port: moto's in this process, which keeps objects in memory and knows
conditional writes; in `make soak` a server that is a process of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.s3_server import BUCKET, S3Server

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["BUCKET", "s3_service"]


@pytest.fixture(scope="module")
def s3_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The query of an ``s3://archives/...`` URL that leads there.

    Credentials are in the environment meanwhile, as an archiver would have them."""
    if "WORMHOLE_ROUNDS" in os.environ:
        with pytest.MonkeyPatch.context() as patch:
            gateway = S3Server(tmp_path_factory.mktemp("s3"))
            for name, value in gateway.environment.items():
                patch.setenv(name, value)
            try:
                yield gateway.to.partition("?")[2]
            finally:
                gateway.kill()
        return
    import botocore.session  # most tests do not need it, and it takes a second to import

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("DEFAULT_REGION", "eu-west-1")):
            patch.setenv(f"AWS_{name}", value)
        patch.setattr(logging.getLogger("werkzeug"), "disabled", True)
        with _moto() as address:
            client = botocore.session.get_session().create_client("s3", endpoint_url=f"http://{address}")
            if not client.list_buckets()["Buckets"]:  # moto keeps them for the whole process
                client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
            yield f"endpoint_override={address}&scheme=http&region=eu-west-1"


class _OneWriteAtATime:
    """Moto looks for an object and then writes it, so two conditional writes at a time would both succeed."""

    def __init__(self, service: WSGIApplication) -> None:
        self._service = service
        self._writing = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with self._writing if environ["REQUEST_METHOD"] == "PUT" else contextlib.nullcontext():
            return self._service(environ, start_response)


@contextlib.contextmanager
def _moto() -> Iterator[str]:
    """Host and port of moto's service."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    service = _OneWriteAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, service, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
