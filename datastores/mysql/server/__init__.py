"""One server: its address and the login, its settings, the state of its log, and the tables that it has."""
