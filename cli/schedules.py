"""An interval as cron, systemd and Kubernetes write it, and the texts that run a profile so often."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from dlq.core.errors import UsageError
from dlq.core.values.units import seconds

_MINUTES = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)
_HOURS = (1, 2, 3, 4, 6, 8, 12)
KNOWN = ", ".join([*(f"{n}m" for n in _MINUTES), *(f"{n}h" for n in _HOURS), "1d", "1w"])
"""What divides an hour, a day or a week evenly: cron knows nothing else."""
_NIGHT = 3
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONGEST_NAME = 52
"""Characters of a CronJob's name: its jobs put eleven behind it."""
_DIGEST = 8
_AFTER = 60
"""Seconds after max_time at which the program that started a run ends it."""


@dataclass(frozen=True)
class Schedule:
    """An interval: five fields of cron, and a calendar event of systemd."""

    cron: str
    calendar: str


def schedule(every: str) -> Schedule:
    """Return the interval `every`, e.g. 15m; raises UsageError for one that cron cannot express."""
    minutes, rest = divmod(seconds(every), 60)
    found = None if rest else _TABLE.get(int(minutes))
    if found is None:
        raise UsageError(f"--every {every}: cron cannot express this; use {KNOWN}")
    return found


def _table() -> dict[int, Schedule]:
    found = {n: Schedule(f"*/{n} * * * *", f"*:0/{n}") for n in _MINUTES}
    found |= {60 * n: Schedule(f"0 */{n} * * *", f"*-*-* 0/{n}:00:00") for n in _HOURS}
    found[1] = Schedule("* * * * *", "*:*")
    found[60] = Schedule("0 * * * *", "*:00")
    found[24 * 60] = Schedule(f"0 {_NIGHT} * * *", f"*-*-* 0{_NIGHT}:00:00")
    found[7 * 24 * 60] = Schedule(f"0 {_NIGHT} * * 1", f"Mon *-*-* 0{_NIGHT}:00:00")
    return found


_TABLE: Mapping[int, Schedule] = _table()


@dataclass(frozen=True)
class Call:
    """What to run: `words` with absolute paths, in `folder`, with `environment`."""

    profile: str
    every: str
    words: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    secrets: Sequence[str]
    """Names of the variables that hold passwords; their values are nowhere in the texts."""
    max_seconds: float | None
    image: str

    def __post_init__(self) -> None:
        """Check the texts. Raises UsageError for what none can hold: a line break would begin a line of its
        own."""
        for text in (*self.words, self.folder, *self.environment.values(), self.profile, self.image):
            if _UNWRITABLE.search(text):
                why = "it holds control characters, or is not UTF-8"
                raise UsageError(f"{text!r} cannot stand in a schedule: {why}; rename it")


def crontab(call: Call) -> str:
    """Return one line. Cron mails what is on standard error; the JSON on standard output is dropped."""
    variables = [f"{name}={_shell_word(value)}" for name, value in call.environment.items()]
    command = " ".join([*variables, *map(_shell_word, call.words), ">/dev/null"])
    line = f"cd {_shell_word(call.folder)} && {command}"
    return f"{schedule(call.every).cron} " + line.replace("%", r"\%")


def _shell_word(text: str) -> str:
    """Quote for sh, behind cron. Crons disagree about a backslash before another or before `%`, so a pair of
    quotes that means nothing stands behind each."""
    return shlex.quote(text).replace("\\", "\\''")


def systemd(call: Call) -> dict[str, str]:
    """Return a service and its timer, by file name."""
    limit = "infinity" if call.max_seconds is None else str(int(call.max_seconds) + _AFTER)
    name = f"dlq-{call.profile}"
    service = [
        "[Unit]",
        f"Description=dlq run {call.profile}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "Type=oneshot",
        f"WorkingDirectory={_unit_path(call.folder)}",
        *(f"Environment={_unit_word(f'{name}={value}')}" for name, value in call.environment.items()),
        *([f"EnvironmentFile=/etc/dlq/{call.profile}.env"] if call.secrets else []),
        f"ExecStart={_unit_command(call.words)}",
        "StandardOutput=null",
        f"TimeoutStartSec={limit}",
    ]
    timer = [
        "[Unit]",
        f"Description=dlq run {call.profile} every {call.every}",
        "",
        "[Timer]",
        f"OnCalendar={schedule(call.every).calendar}",
        "Persistent=true",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return {f"{name}.service": "\n".join(service) + "\n", f"{name}.timer": "\n".join(timer) + "\n"}


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def _unit_path(path: str) -> str:
    """Write a path up to the end of its line: there are no quotes, but its last character must not be one
    that is cut off, or that takes the next line in."""
    return _percent(path) + ("/" if path.endswith((" ", "\\")) else "")


def _unit_command(words: Sequence[str]) -> str:
    """Quote a word of a unit's command. Only a program's name may hold a dollar sign as it is, and it may
    hold no quote and no backslash."""
    if re.search(r"[\"'\\]", words[0]):
        words = ("/bin/sh", "-c", 'exec "$0" "$@"', *words)
    program, *arguments = words
    return " ".join([_unit_word(program), *(_unit_word(word.replace("$", "$$")) for word in arguments)])


def _unit_word(text: str) -> str:
    """Return a word of a unit file: quoted where it must be."""
    escaped = _percent(text).replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"' if re.search(r"[\s\"'\\;]", text) else escaped


def kubernetes(call: Call) -> str:
    """Return a CronJob. It expects a config map dlq-config, secret dlq-secrets, volume claim dlq-archive."""
    limit = "" if call.max_seconds is None else _DEADLINE.format(seconds=int(call.max_seconds) + _AFTER)
    secrets = _SECRETS if call.secrets else ""
    words = ["/usr/local/bin/dlq", "-c", "/etc/dlq/dlq.toml", "run", call.profile, "--skip-if-busy"]
    return _CRON_JOB.format(
        name=_job_name(call.profile),
        schedule=json.dumps(schedule(call.every).cron),
        limit=limit,
        image=json.dumps(call.image),
        command=json.dumps([*words, "--log-format", "json"]),
        secrets=secrets,
    )


def _job_name(profile: str) -> str:
    """Return a name that Kubernetes takes. Where it is not that of the profile, a digest tells it from others
    that become alike."""
    whole = f"dlq-{profile}"
    name = re.sub(r"[^a-z0-9]+", "-", whole.lower()).strip("-")
    if name == whole and len(name) <= _LONGEST_NAME:
        return name
    digest = sha256(profile.encode()).hexdigest()[:_DIGEST]
    return f"{name[: _LONGEST_NAME - _DIGEST - 1].rstrip('-')}-{digest}"


_DEADLINE = "      activeDeadlineSeconds: {seconds}\n"
_SECRETS = """\
              envFrom:
                - secretRef:
                    name: dlq-secrets
"""
_CRON_JOB = """\
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {name}
spec:
  schedule: {schedule}
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 300
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 0
{limit}      template:
        spec:
          restartPolicy: Never
          securityContext: {{fsGroup: 10001}}
          containers:
            - name: dlq
              image: {image}
              command: {command}
              workingDir: /var/lib/dlq
{secrets}              volumeMounts:
                - name: config
                  mountPath: /etc/dlq
                  readOnly: true
                - name: archive
                  mountPath: /var/lib/dlq
          volumes:
            - name: config
              configMap:
                name: dlq-config
            - name: archive
              persistentVolumeClaim:
                claimName: dlq-archive
"""
