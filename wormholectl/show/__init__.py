"""How ``wormholectl`` prints: ``printer`` is the only way to standard output, and tables are made here alone.

``lists`` turns what several publishers report into one table or object. Each other module shows one kind of thing for
several nouns: as rows for people, as objects for programs. What one noun alone prints is in its folder.
"""
