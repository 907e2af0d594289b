"""Sockets, TLS and HTTP, as every connector uses them."""
