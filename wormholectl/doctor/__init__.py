"""``doctor`` and ``support-dump``: a survey of an installation, and what is right and wrong with it.

``redact`` takes secrets out of what leaves the host.
"""
