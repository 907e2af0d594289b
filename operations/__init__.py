"""What a command does, as functions: the command line, the page and agents' tools call them."""
