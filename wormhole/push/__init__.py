"""The sending side of the wire protocol: frames, windows, sessions and connections.

Publishers and Spark's replay share it.
"""
