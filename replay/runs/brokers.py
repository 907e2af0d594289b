"""The connectors of one run, opened when they are first needed and closed together."""

from collections.abc import Callable
from types import TracebackType

from dlq.connectors import open_connector
from dlq.connectors.base import Connector
from dlq.core.errors import UsageError
from dlq.core.settings import Broker, Settings

Opener = Callable[[Broker], Connector]


class Brokers:
    """Broker name -> connector. A context manager: leaving it closes them."""

    def __init__(self, settings: Settings, opener: Opener = open_connector) -> None:
        self._settings, self._opener = settings, opener
        self._open: dict[str, Connector] = {}

    def name_for(self, source: str, broker: str) -> str | None:
        """Return the configured broker that a letter goes back to: its source's, else the one it came from,
        which a file that is imported does not say."""
        if source in self._settings.sources:
            return self._settings.sources[source].broker
        return broker if broker in self._settings.brokers else None

    def get(self, name: str) -> Connector:
        """Return the connector of a configured broker. Raises BrokerError, UsageError for an unknown name."""
        if name not in self._settings.brokers:
            raise UsageError(f"broker {name!r} is not in the configuration any more; add it again")
        if name not in self._open:
            self._open[name] = self._opener(self._settings.brokers[name])
        return self._open[name]

    def __enter__(self) -> "Brokers":
        """Nothing is opened yet."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close what was opened."""
        for connector in self._open.values():
            connector.close()
