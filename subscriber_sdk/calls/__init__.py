"""Calling the application: its callbacks, their time limit, another try, and what the log shows of a failure."""
