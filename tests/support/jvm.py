"""How the Java processes of the tests start."""

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For what lives for seconds: the second compiler takes as much CPU as the work, and never pays."""
