"""Files and secrets of this machine, read when a connection is made."""
