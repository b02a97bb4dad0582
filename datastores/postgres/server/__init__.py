"""The connection to one server: its address and login, sessions, its state, and the stream of its walsender."""
