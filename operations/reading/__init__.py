"""Operations that look at the archive: letters, failures, incidents, reports, books."""
