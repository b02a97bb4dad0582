"""The connection to one server: its address and login, its settings, the state of its log, and its tables."""
