"""The formats that a report, a metric or a picture is written in."""
