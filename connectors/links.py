"""What connections whose frames we read ourselves have in common."""


class LinkLostError(Exception):
    """The connection ended without the broker's saying why."""
