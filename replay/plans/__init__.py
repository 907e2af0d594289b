"""Plans: which letters go back, where to, as what; and the file that says so."""
