"""A mass replay pushes updates of the archive to subscribers again, until the live log takes over.

The driver (:mod:`spark_replay.replay.driver`) uses each module of this package for one step of a replay.
"""
