"""The noun ``config``: configuration files, the stored configuration, and the history of its changes."""
