"""Where bytes of the archive lie: folders, object stores, Parquet, locks."""
