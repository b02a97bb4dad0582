"""HDFS as a datastore: the edits of its NameNode."""
