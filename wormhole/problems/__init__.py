"""The codes of problems. A code is the stable name of all problems with one remedy, and has an entry in the runbook.
Imports no other package of the project.
"""
