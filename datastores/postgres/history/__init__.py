"""The histories of servers that were read, and the proof that the log still belongs to one."""
