"""The pull: connector -> archive -> acknowledgement; what the last run left is mended first."""
