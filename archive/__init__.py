"""The archive: segments and their commit protocol, checkpoints, views for looking, retention."""
