"""What a publisher needs in the database: the findings of `wormholectl doctor`, and the SQL that creates what is
missing.
"""
