"""HDFS as a datastore. Its log is the edits that its NameNode logs: the changes of files and folders."""
