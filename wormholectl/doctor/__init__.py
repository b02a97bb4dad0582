"""``doctor`` and ``support-dump``: a survey of an installation, what is right and wrong with it, and no secrets."""
