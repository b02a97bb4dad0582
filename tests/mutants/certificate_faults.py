"""Faults in whose certificate is accepted, and in how files are followed; :mod:`tests.mutants.faults` lists them
with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_HOSTILE = ("tests/hostile/test_certificates.py",)
_RULES = ("tests/unit/wormhole/host/test_tls.py",)

CERTIFICATE_FAULTS: list[Fault] = [
    Fault(
        name="dialled-without-the-pin",
        file="wormhole/host/peer_check.py",
        old="    return trust.channel_credentials(peer), peer\n",
        new="    return trust.channel_credentials(), peer\n",
        tests=_HOSTILE,
        promise="whoever answers gRPC shows the certificate that was checked, or is not spoken to",
    ),
    Fault(
        name="list-out-of-date-lets-in",
        file="wormhole/host/certificates.py",
        old="        if all(one.is_stale(now) for one in of_issuer):",
        new="        if all(one.is_stale(one.this_update) for one in of_issuer):",
        tests=_RULES,
        promise="a list that was kept away does not undo a revocation",
    ),
    Fault(
        name="list-of-anybody",
        file="wormhole/host/certificates.py",
        old="        return parsed.is_signature_valid(certificate.public_key())",
        new="        return bool(parsed.signature)",
        tests=_RULES,
        promise="only the authority revokes",
    ),
    Fault(
        name="key-of-another-certificate-taken",
        file="wormhole/host/certificates.py",
        old="    if private.public_key().public_bytes(*form) != public:",
        new="    if not private.public_key().public_bytes(*form):",
        tests=_RULES,
        promise="a half-written pair leaves the old one in use",
    ),
    Fault(
        name="revoked-stream-goes-on",
        file="subscriber_sdk/server/push_server.py",
        old="                watching = self._watch(stream, self.trust, context)\n",
        new="                pass\n",
        tests=_HOSTILE,
        promise="an open stream ends when its publisher's certificate is revoked",
    ),
    Fault(
        name="revoked-subscriber-is-pushed-to",
        file="wormhole/push/dial.py",
        old="        if trust is None or self.certificate is None:\n            await",
        new="        if True:\n            await",
        tests=(
            "tests/integration/publisher/test_publisher.py",
            "tests/integration/publisher/test_publisher_failures.py",
            "tests/integration/publisher/test_publisher_epochs.py",
        ),
        promise="an open stream ends when its subscriber's certificate is revoked",
    ),
    Fault(
        name="revoked-certificate-administers",
        file="publisher/operate/admin.py",
        old="and (why := trust.refuses_client(authenticated)):",
        new='and (why := ""):',
        tests=("tests/integration/publisher/operate/test_admin.py",),
        promise="a revoked certificate changes nothing",
    ),
]
