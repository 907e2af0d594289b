"""ActiveMQ Classic and Artemis: STOMP, OpenWire for sending, and their management."""
