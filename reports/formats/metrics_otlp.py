"""The same metrics to an OpenTelemetry collector, by OTLP over HTTP. Needs `dlq[otlp]`."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dlq.core.errors import UsageError
from dlq.core.runtime import patience
from dlq.reports.formats.metrics import Metric

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric as SdkMetric

_PATH = "/v1/metrics"


def send(metrics: Sequence[Metric], url: str, started: float, now: float) -> None:
    """Send them once to the collector at `url` (http://host:4318). Times are seconds since the epoch.

    `started` is when the archive began: its counters count from there, not from the start of this
    process. Raises UsageError when the SDK is missing or the collector does not take them. One whose answer
    goes on for ever has to be left by the caller.
    """
    try:
        import requests
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics
        from opentelemetry.sdk.metrics.export import ScopeMetrics as Scope
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    except ImportError as error:
        raise UsageError("OTLP needs the OpenTelemetry SDK: pip install 'dlq[otlp]'") from error
    # It would log the address and a traceback for every attempt.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    points = [_convert(metric, int(started * 1e9), int(now * 1e9)) for metric in metrics if metric.samples]
    resource = Resource.create({"service.name": "dlq"})
    scope = Scope(InstrumentationScope("dlq"), points, "")
    session = _session(requests)
    endpoint = url if url.endswith(_PATH) else url.rstrip("/") + _PATH
    exporter = OTLPMetricExporter(endpoint=endpoint, timeout=patience.SHORTLY, session=session)
    try:
        result = exporter.export(MetricsData([ResourceMetrics(resource, [scope], "")]))
    finally:
        exporter.shutdown()
    if result is not MetricExportResult.SUCCESS:
        raise UsageError(
            f"the collector at {urlsplit(url).hostname} did not take the metrics{session.why}; check its log"
        )


def _session(requests: Any) -> Any:
    class HeadAlone(requests.Session):  # type: ignore[misc]
        """Reads no body, however large, and goes nowhere else: the user's headers (keys among them) are for
        this address alone. `why`: what came of it, without the address, in which a key may be."""

        why = ""

        def send(self, request: Any, **options: Any) -> Any:
            try:
                answer = super().send(request, **{**options, "stream": True})
            except OSError as error:
                self.why = f": {_innermost(error)}"
                raise
            answer.close()
            self.why = f": HTTP {answer.status_code}"
            if 300 <= answer.status_code < 400:  # which the exporter takes for a success
                raise requests.TooManyRedirects
            return answer

        def get_redirect_target(self, _answer: Any) -> None:
            """Follow no redirect."""

    return HeadAlone()


def _innermost(error: BaseException) -> str:
    """Return what all the others are about."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return str(getattr(error, "verify_message", "") or getattr(error, "strerror", "") or type(error).__name__)


def _convert(metric: Metric, started: int, now: int) -> "SdkMetric":
    from opentelemetry.sdk.metrics import export

    is_counter = metric.kind == "counter"
    points = [
        export.NumberDataPoint(dict(labels), started if is_counter else now, now, value)
        for labels, value in sorted(metric.samples.items())
    ]
    data: export.Sum | export.Gauge = export.Gauge(points)
    if is_counter:
        data = export.Sum(points, export.AggregationTemporality.CUMULATIVE, is_monotonic=True)
    unit = "s" if metric.name.endswith("_seconds") else "1"
    return export.Metric(metric.name, metric.help, unit, data)
