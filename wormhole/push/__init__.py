"""The pushing side of the wire protocol, pure: frames, windows and sessions.

The publisher and Spark's replay share it.
"""
