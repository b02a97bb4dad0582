"""The commands ``lag``, ``why-lag`` and ``top``: they show whether an application is late, and what delays it."""
