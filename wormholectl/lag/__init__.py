"""``lag``, ``why-lag`` and ``top``: whether an application is late, and what holds it up."""
