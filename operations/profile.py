"""What a profile asks for, checked before anything is done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import Profile, Settings, Source
from dlq.core.text import quote_value
from dlq.core.values import units
from dlq.core.values.checks import check_collector
from dlq.core.values.suggestions import suggest
from dlq.core.values.urls import without_password

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
        """Return the profile's mode, else the source's own."""
        return cast("Mode", self.profile.mode or source.mode)


def load(settings: Settings, name: str, otlp: str | None = None) -> Task:
    """Return the profile `name`, ready to run. Raises UsageError, ConfigError for whatever is wrong in it."""
    profile = find_profile(settings, name)
    reports = [_report(profile, text) for text in profile.report]
    if profile.metrics is not None:
        _file(profile, "metrics", profile.metrics)
    return Task(
        profile,
        _find_sources(settings.sources, profile),
        _bounds(profile),
        reports,
        None if profile.max_time is None else units.seconds(profile.max_time),
        _collector(otlp or profile.metrics_otlp),
    )


def check(settings: Settings) -> None:
    """Check the profile. Raises ConfigError for one that no run could carry out, as far as that costs no
    time."""
    for profile in settings.profiles.values():
        if settings.sources:
            _find_sources(settings.sources, profile)
        _bounds(profile)


def _bounds(profile: Profile) -> "Sequence[Threshold]":
    from dlq.reports import thresholds

    try:
        return thresholds.parse(profile.fail_on)
    except UsageError as error:
        text = str(error).replace("--fail-on", "fail_on")
        raise ConfigError(f"profiles.{profile.name}: {text}") from error


def find_profile(settings: Settings, name: str) -> Profile:
    """Return the configured profile; raises UsageError with the one that was probably meant."""
    known = settings.profiles
    if name not in known:
        listed = f"configured are: {', '.join(known)}" if known else "none is configured: add [profiles.NAME]"
        raise UsageError(f"unknown profile {name!r}{suggest(name, known)}; {listed}; check its name")
    return known[name]


def _find_sources(known: Mapping[str, Source], profile: Profile) -> list[Source]:
    """Return every source once, in the order of the configuration."""
    for pattern in profile.sources:
        if not any(fnmatchcase(name, pattern) for name in known):
            place = f"profiles.{profile.name}.sources"
            raise ConfigError(
                f"{place}: no source matches {quote_value(pattern)}{suggest(pattern, known)}"
                "; add such a source, or correct the pattern"
            )
    return [s for name, s in known.items() if any(fnmatchcase(name, p) for p in profile.sources)]


def _report(profile: Profile, text: str) -> tuple[str, str]:
    """Read `html:reports/x.html`, or a path whose name says the format."""
    from dlq.reports.report import FORMATS, checked_format, format_of_file

    head, colon, path = text.partition(":")
    try:
        if not (colon and (head in FORMATS or "/" not in head)):
            return format_of_file(text), _file(profile, "report", text)
        return checked_format(head), _file(profile, "report", path)
    except UsageError as error:
        raise ConfigError(f"profiles.{profile.name}.report: {error}") from error


def _file(profile: Profile, setting: str, path: str) -> str:
    if path.endswith("/") or not Path(path).name or Path(path).is_dir():
        place = f"profiles.{profile.name}.{setting}"
        raise ConfigError(f"{place}: {quote_value(path)} is no file; write it like out/{setting}.txt")
    return path


def _collector(url: str | None) -> str | None:
    if url is None:
        return None
    check_collector("metrics_otlp", url)
    if not url.startswith(("http://", "https://")) or not urlsplit(url).hostname:
        raise UsageError(
            f"metrics_otlp = {without_password(url)!r} is no URL; write it like http://127.0.0.1:4318"
        )
    return url
