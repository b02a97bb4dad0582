"""The JVM that talks to the NameNode."""
