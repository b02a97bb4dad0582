"""``doctor`` and ``support-dump``: they survey an installation and report its problems.

``redact`` removes secrets from text that leaves the host.
"""
