"""A mass replay: updates of the archive pushed again, until the live log takes over.

It has more than twenty modules. The driver uses each for one step of a replay.
"""
