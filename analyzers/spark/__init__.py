"""The analysis as a Spark job: what runs where, and what is written."""
