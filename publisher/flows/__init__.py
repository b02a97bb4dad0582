"""Flows: which there are, who receives each, what is stored of each, and what becomes of one that cannot go on.

It has more than twenty modules: each is one rule or one store of a flow, and most of them use the same flow.
"""
