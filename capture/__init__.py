"""The pull: connector -> archive -> acknowledgement; what the last run left is repaired first."""
