"""Jolokia's answers, as it writes them."""

import json

from dlq.connectors.activemq_jolokia import mended


def test_control_characters_that_jolokia_writes_wrongly_are_read() -> None:
    written = rb'["a\u001;b\u000<\u0007", "\\u001;", "\"\u00e9"]'
    assert json.loads(mended(written)) == ["a\x1bb\x0c\x07", "\\u001;", '"é']
