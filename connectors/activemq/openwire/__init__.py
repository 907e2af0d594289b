"""OpenWire, the protocol of ActiveMQ Classic's own clients."""
