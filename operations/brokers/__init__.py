"""Operations that ask brokers: pulls, sources, what is full, and where deaths lead."""
