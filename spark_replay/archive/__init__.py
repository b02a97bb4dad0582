"""The archive of one dataset: Parquet files that hold every update, and manifests that say which files count.

It has more than twenty modules: all read or write one form of files.
"""
