"""The bearers by which agents ask the page's server, from the files that `[serve.agents]` names."""

import re
from collections.abc import Mapping

from dlq.connectors.local.credentials import from_file
from dlq.core.errors import ConfigError
from dlq.core.settings import Serve

_BEARER = re.compile(r"[A-Za-z0-9._~+/-]{32,512}=*")


def read_bearers(serve: Serve) -> Mapping[str, str]:
    """Name of an agent -> its bearer. Raises ConfigError for a file that holds none."""
    return {name: _read_bearer(f"serve.agents.{name}", path) for name, path in serve.agents.items()}


def _read_bearer(place: str, path: str) -> str:
    bearer = from_file(place, path)
    if not _BEARER.fullmatch(bearer):
        raise ConfigError(
            f"{place}: {path} holds no bearer: write one of 32 characters or more, such as "
            "`openssl rand -hex 32` prints"
        )
    return bearer
