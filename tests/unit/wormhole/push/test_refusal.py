from __future__ import annotations

import pytest

from wormhole.push.refusal import why_unreachable

WRAPPED = "failed to connect to all addresses; last error: UNKNOWN: "


@pytest.mark.parametrize(
    ("details", "told"),
    [
        (f"{WRAPPED}ipv4:127.0.0.1:7400: Failed to connect to remote host: Connection refused", "Connection refused"),
        (f"{WRAPPED}ipv6:%5B::1%5D:7400: Failed to connect to remote host: Connection refused", "Connection refused"),
        (f"{WRAPPED}ipv4:10.0.0.1:1: Ssl handshake failed: CERTIFICATE_VERIFY_FAILED", "Ssl handshake failed: CERTIFICATE_VERIFY_FAILED"),  # noqa: E501
        (" Stream removed (recvmsg:Connection reset by peer (104)) ", "Stream removed (recvmsg:Connection reset by peer (104))"),  # noqa: E501
        ("", ""),
    ],
)  # fmt: skip
def test_what_matters_is_kept(details: str, told: str) -> None:
    assert why_unreachable(details) == told


def test_a_refusal_of_this_grpc_is_of_the_known_form() -> None:
    import grpc

    from wormhole.admin.admin_service import describe
    from wormhole.model.errors import StreamBroken

    with pytest.raises(StreamBroken) as raised:
        describe("127.0.0.1:1")
    assert isinstance(raised.value.__cause__, grpc.RpcError)
    assert raised.value.message == "the publisher at 127.0.0.1:1 does not answer: unavailable (Connection refused)"
