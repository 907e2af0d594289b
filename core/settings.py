"""The configuration as frozen values; `dlq.core.configuration` makes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

AUTO = "auto"
"""`witness`: on where it is of use."""
EVIDENCE_KINDS = ("rocketmq-dedup", "shine-mq")
OWNER_WORDS = ("safe", "check_first", "never")
RETAIN_STATES = ("replayed", "dismissed", "waiting")
"""Letters that retention may remove: replayed = confirmed; waiting = not, and nothing of them is open."""


@dataclass(frozen=True)
class Broker:
    """One configured connection to a cluster, as far as all kinds of brokers have it (`dlq.core.brokers`)."""

    name: str
    kind: str
    url: str = ""
    password_file: str | None = None
    password_command: tuple[str, ...] | None = None
    password_env: str | None = None
    witness: bool | str = False
    """Whether a replay leaves proof there; "auto": where a witness is needed and would prove something."""
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    timeout: str = "10s"

    def urls(self) -> dict[str, str]:
        """Setting -> URL, of those that are set."""
        names = (each.name for each in fields(self) if each.name == "url" or each.name.endswith("_url"))
        return {name: url for name in names if (url := getattr(self, name))}


@dataclass(frozen=True)
class Source:
    """One configured place where dead letters lie."""

    name: str
    broker: str
    queue: str | None = None
    topic: str | None = None
    group: str | None = None
    transactions: bool = False
    key: str = "message_id"
    mode: str = "copy"
    version: str | None = None
    """Where a letter says the version of the application that failed, in the forms of `key`."""
    coverage: str = ""
    """`required`: a plan leaves its letters out as risky where what dies again at their target is lost."""
    superseded: str = "check_first"
    """Advice on a letter that something newer of its business key has replaced; or `never`."""
    in_order: bool = False
    """Every plan sends its letters key by key, in the order in which they were sent."""


@dataclass(frozen=True)
class Rule:
    """A cause rule of the user's own; `where` is Spark SQL over the record's columns."""

    name: str
    where: str
    cause: str | None = None
    advice: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Evidence:
    """A store outside that knows what became of a message: its consumer's dedup records (kind
    rocketmq-dedup: Jaskey's RocketMQDedupListener), or its producer's coordinator (kind shine-mq)."""

    name: str
    kind: str
    url: str
    """redis://, rediss://, or (rocketmq-dedup) a database; never with a password in it."""
    sources: tuple[str, ...] = ("*",)
    """Names or patterns of the sources whose letters it knows."""
    password_file: str | None = None
    password_command: tuple[str, ...] | None = None
    password_env: str | None = None
    prefix: str | None = None
    """Of the store's keys in Redis; default MSGDEDUP, or none (shine-mq)."""
    table: str | None = None
    """In a database; default t_rocketmq_dedup."""
    application: str | None = None
    """What the listener calls its application; default: the letter's consumer group."""
    window: str = "24h"
    """How long the listener keeps a record (dedupRecordReserveMinutes)."""


@dataclass(frozen=True)
class Consumer:
    """What the owner of a consumer knows of replays to it (`dlq.replay.plans.owners`)."""

    name: str
    sources: tuple[str, ...]
    """Names or patterns of the sources whose letters it has consumed."""
    replay: str | None = None
    """One of OWNER_WORDS; None: dlq's own advice stands."""
    because: str | None = None
    holds_for: str | None = None
    """How long the word is true of a message, counted from its oldest known time."""
    before: str | None = None
    """What a person does before a replay."""
    verify: tuple[str, ...] = ()
    """A program, run without a shell, that reports which messages were processed (`dlq replay check`)."""
    verify_timeout: str = "30s"


@dataclass(frozen=True)
class Profile:
    """What `dlq run NAME` does."""

    name: str
    sources: tuple[str, ...] = ("*",)
    mode: str | None = None
    limit: int | None = None
    max_time: str | None = None
    analyze: bool = True
    report: tuple[str, ...] = ()
    mask: bool = False
    fail_on: tuple[str, ...] = ()
    metrics: str | None = None
    metrics_otlp: str | None = None
    on_alarm: tuple[str, ...] = ()
    alarm_timeout: str = "30s"


@dataclass(frozen=True)
class Retain:
    """What may leave the archive, and when."""

    max_age: str | None = None
    states: tuple[str, ...] = ("replayed",)
    max_size: str | None = None
    analyses: int = 30
    """So many analyses are kept, the newest."""


@dataclass(frozen=True)
class Mask:
    """What a masked view shows beside structure."""

    show: tuple[str, ...] = ()
    """header:NAME (a pattern, too), json:$.path, or a column (`dlq.core.values.masks.COLUMNS`)."""


@dataclass(frozen=True)
class Ledger:
    """Where the ledger lives; `sqlite` is a file in the archive."""

    url: str = "sqlite"
    lease: str = "30s"
    password_file: str | None = None
    password_command: tuple[str, ...] | None = None
    password_env: str | None = None


@dataclass(frozen=True)
class Replay:
    """How replays behave."""

    max_laps: int = 3
    ramp_wait: str = "10s"
    approval: bool = False
    """Whether a plan is applied only with another person's consent (`dlq replay approve`)."""
    approval_time: str = "24h"
    """How long such a consent counts."""
    targets: tuple[str, ...] = ()
    """Names or patterns (orders*, queue:orders*) of where a replay may go; empty: anywhere."""
    keep: tuple[str, ...] = ()
    """Patterns of headers that a replay leaves on letters, though they look like those of a failure."""
    window: int | None = None
    """Letters of a replay that may be open, and so in doubt, at once; None: what suits the broker."""


@dataclass(frozen=True)
class Analysis:
    """When letters are classified, and by which engine."""

    spark_from: int = 50_000
    """Letters from which on Spark takes over."""
    after_pull: bool = True
    """Whether `pull` and `import` end with an analysis."""


@dataclass(frozen=True)
class Roles:
    """Who may do what on the page: names, `group:NAME`, or `*` for everybody whose name is proven."""

    read: tuple[str, ...] = ("*",)
    triage: tuple[str, ...] = ()
    """Say something of failures, and dismiss letters."""
    plan: tuple[str, ...] = ()
    """Make plans, edit letters for them, and analyze."""
    approve: tuple[str, ...] = ()
    apply: tuple[str, ...] = ()
    """Send, stop and pull, and ask brokers what became of letters in doubt."""
    reconcile: tuple[str, ...] = ()
    """Say what became of letters in doubt where no broker shows it."""
    unmask: tuple[str, ...] = ()
    """See letters as they are, which the audit tells."""


@dataclass(frozen=True)
class Serve:
    """The page (`dlq serve`); without it, it is read-only on this host alone."""

    hosts: tuple[str, ...] = ()
    """Names by which browsers may ask for it, beside localhost and loopback addresses."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks whose X-Forwarded-User is believed."""
    groups_header: str | None = None
    """The header by which they say who is in which groups, and which none of them lets through; None: no
    groups are believed."""
    agents: Mapping[str, str] = field(default_factory=dict)
    """An agent's name -> the file that holds its bearer, by which it may use `/mcp`."""
    roles: Roles = field(default_factory=Roles)


@dataclass(frozen=True)
class Spark:
    """The Spark session."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """The whole configuration."""

    archive: str = "./archive"
    brokers: Mapping[str, Broker] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    consumers: Mapping[str, Consumer] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    retain: Retain = field(default_factory=Retain)
    mask: Mask = field(default_factory=Mask)
    ledger: Ledger = field(default_factory=Ledger)
    replay: Replay = field(default_factory=Replay)
    analysis: Analysis = field(default_factory=Analysis)
    serve: Serve = field(default_factory=Serve)
    spark: Spark = field(default_factory=Spark)
