"""The archive of one dataset: Parquet files with every update, and manifests that list the valid files.

It has more than twenty modules, because all of them read or write one form of files.
"""
