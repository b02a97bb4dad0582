"""What the system tests are made of.

The way of the truth: ``writer`` commits to the store and journals every commit before and after; ``subscriber`` writes
a line for each thing that it is told; ``truth`` and ``logs`` read both back; ``checker`` (pure) compares them.
``processes`` starts, freezes and kills, ``ensemble`` joins everything.
"""
