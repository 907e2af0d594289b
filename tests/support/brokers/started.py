"""A broker that runs within a block, or at the command line until somebody ends it."""

import signal
from typing import Self


class Started:
    """What starts, perhaps again after it was killed, and is gone behind its block."""

    def start(self) -> object:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def run_until_ended(broker: Started, url: str) -> None:
    """The command line of a broker's module."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with broker:
        print(f"url = {url}", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopping")
