"""pika's connection with bounds: by itself it takes frames of any length, and waits for ever."""

from typing import Any

from pika import SelectConnection
from pika.exceptions import AMQPConnectionError, AMQPError, InvalidFrameError

from dlq.connectors.rabbitmq.amqp.frames import MAX_FRAME

MOST_BYTES = 16 * 2**20
SECONDS = 60.0


class BoundedConnection(SelectConnection):  # type: ignore[misc]
    """For questions and small things: so many bytes and seconds in all, then it ends."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._taken = 0
        super().__init__(*arguments, **options)
        self._adapter_call_later(SECONDS, self._give_up)

    def _give_up(self) -> None:
        if not self.is_closed:
            self._terminate_stream(AMQPConnectionError(f"no answer within {SECONDS:.0f} s"))

    def _on_data_available(self, data_in: bytes) -> None:
        """What is raised here ends the connection, and whoever waits for it gets the error."""
        self._taken += len(data_in)
        if self._taken > MOST_BYTES:
            raise InvalidFrameError(f"the broker answers a question with more than {MOST_BYTES >> 20} MiB")
        try:
            super()._on_data_available(data_in)
            size = int.from_bytes(self._frame_buffer[3:7], "big")
            if size > MAX_FRAME:
                raise InvalidFrameError(f"a frame of {size} bytes, more than was agreed on")
        except AMQPError:
            raise
        except Exception as error:
            # KeyError, struct.error, AssertionError, RecursionError, ...: pika believes what it reads.
            raise InvalidFrameError(
                f"what the broker sends cannot be read ({type(error).__name__}); is this the AMQP port?"
            ) from error
