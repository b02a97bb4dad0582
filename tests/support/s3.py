"""A service that speaks S3, on a free loopback port: moto's in this process, which keeps objects in memory and knows
conditional writes; in `make soak` a server that is a process of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from tests.support.s3_server import BUCKET, S3Server

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
    # Most tests need neither; both take a second to import.
    import botocore.session
    from moto.server import ThreadedMotoServer

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("DEFAULT_REGION", "eu-west-1")):
            patch.setenv(f"AWS_{name}", value)
        patch.setattr(logging.getLogger("werkzeug"), "disabled", True)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            client = botocore.session.get_session().create_client("s3", endpoint_url=f"http://{host}:{port}")
            if not client.list_buckets()["Buckets"]:  # moto keeps them for the whole process
                client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
            yield f"endpoint_override={host}:{port}&scheme=http&region=eu-west-1"
        finally:
            server.stop()
