"""What a run needs, whatever it does: patience, bounds, logs, and settings of the interpreter."""
