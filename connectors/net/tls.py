"""TLS as a client: whose certificate a server must have, and what is shown of ourselves."""

import ssl

from dlq.core.errors import ConfigError
from dlq.core.settings import Broker


def client_context(broker: Broker, verify_host: bool = True) -> ssl.SSLContext:
    """Chain and name are checked: by `ca_file` of the broker, else by the host's authorities. Without
    `verify_host` any name will do. Raises ConfigError for files that are none."""
    try:
        context = ssl.create_default_context(cafile=broker.ca_file)
        context.check_hostname = verify_host
        if broker.cert_file is not None:
            context.load_cert_chain(broker.cert_file, broker.key_file)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or type(error).__name__
        place = f"brokers.{broker.name}: ca_file, cert_file or key_file"
        raise ConfigError(f"{place} is unusable: {reason}; check the file") from error
    return context
