"""The push protocol of one stream, without I/O: turns a publisher's frames into events, and answers into frames."""
