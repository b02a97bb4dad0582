"""The JVM with Hadoop's client, which calls the NameNode."""
