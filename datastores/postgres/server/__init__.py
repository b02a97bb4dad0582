"""One server: its address and the login, sessions on it, its state, and the stream of its walsender."""
