"""Flows: which flows exist, which subscriber receives each, what is stored about each, and how a flow that cannot
continue is treated.

The package has more than twenty modules. Each is one rule or one store, and most of them use the same
``PublisherFlow``.
"""
