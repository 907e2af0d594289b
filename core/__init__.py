"""Words of the project that need no I/O: the record, settings, cause names, errors, business keys, clock."""
