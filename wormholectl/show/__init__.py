"""The output of ``wormholectl``. Only ``printer`` writes to standard output, and only this package makes tables.

``lists`` combines the reports of several publishers into one table or JSON object. Each other module shows one kind of
item for several nouns, as rows for people and as objects for programs. Output of a single noun is in the noun's folder.
"""
