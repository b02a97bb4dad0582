"""The noun ``filters``: what a filter selects, its effect on a log, and the columns that tables lack."""
