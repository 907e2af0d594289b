"""What shows only between letters, and the advice that follows: plain functions over plain values.

Nothing here reads or writes anything. A time is a whole number, microseconds since the epoch in UTC.
"""
