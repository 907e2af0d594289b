"""What a profile asks for, checked before anything is done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, cast

from dlq.core import units
from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import Profile, Settings, Source, suggest

if TYPE_CHECKING:
    from dlq.connectors.base import Mode
    from dlq.reports.thresholds import Threshold


@dataclass(frozen=True)
class Task:
    """A profile with its patterns resolved. `reports` are (format, path)."""

    profile: Profile
    sources: Sequence[Source]
    thresholds: "Sequence[Threshold]"
    reports: Sequence[tuple[str, str]]
    max_seconds: float | None
    otlp: str | None

    def mode_of(self, source: Source) -> "Mode":
        """The profile's mode, else the source's own."""
        return cast("Mode", self.profile.mode or source.mode)


def load(settings: Settings, name: str, otlp: str | None = None) -> Task:
    """The profile `name`, ready to run. Raises UsageError, ConfigError for whatever is wrong in it."""
    from dlq.reports import report, thresholds

    profile = named(settings, name)
    place = f"[profiles.{name}]"
    max_seconds = None if profile.max_time is None else units.seconds(profile.max_time)
    if max_seconds == 0 or (profile.limit is not None and profile.limit < 1):
        raise ConfigError(f"{place}: max_time and limit must be more than 0")
    reports = [_report(text) for text in profile.report]
    for format_, _path in reports:
        report.checked_format(format_)
    try:
        bounds = thresholds.parse(profile.fail_on)
    except UsageError as error:
        raise ConfigError(f"{place}: {str(error).replace('--fail-on', 'fail_on')}") from error
    return Task(
        profile,
        _matching(settings.sources, profile.sources, place),
        bounds,
        reports,
        max_seconds,
        otlp or profile.metrics_otlp,
    )


def named(settings: Settings, name: str) -> Profile:
    """The configured profile; raises UsageError with the one that was probably meant."""
    known = settings.profiles
    if name not in known:
        listed = f"configured are: {', '.join(known)}" if known else "none is configured: add [profiles.NAME]"
        raise UsageError(f"unknown profile {name!r}{suggest(name, known)}; {listed}")
    return known[name]


def _matching(known: Mapping[str, Source], patterns: Sequence[str], place: str) -> list[Source]:
    """Every source once, in the order of the configuration."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise ConfigError(f"{place}: no source matches {pattern!r}{suggest(pattern, known)}")
    return [s for name, s in known.items() if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _report(text: str) -> tuple[str, str]:
    """`html:reports/x.html`, or a path whose name says the format."""
    from dlq.reports.report import FORMATS, format_of_file

    head, colon, path = text.partition(":")
    if colon and path and (head in FORMATS or "/" not in head):
        return head, path
    return format_of_file(text), text
