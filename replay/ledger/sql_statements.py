"""The table of an SQL ledger and the statements on it, in SQLAlchemy core."""

from collections.abc import Callable, Mapping

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dlq.replay.states import BY_OWNER, BY_RECONCILE, MAY_SEND, MAY_SEND_AGAIN

TABLE = sa.Table(
    "replays",
    sa.MetaData(),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("plan", sa.String(64), nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("record_id", sa.String(64), nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("lap", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
    sa.Column("sent_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("detail", sa.Text),
)
T = TABLE.c
INSERTED = (
    "key",
    "plan",
    "number",
    "record_id",
    "target",
    "lap",
    "state",
    "owner",
    "lease_until",
    "sent_at",
    "updated_at",
)

INSERT_IF_NEW: Mapping[str, Callable[[sa.Table], sa.Insert]] = {
    "sqlite": lambda table: sqlite.insert(table).on_conflict_do_nothing(),
    "postgresql": lambda table: postgresql.insert(table).on_conflict_do_nothing(),
    "mysql": lambda table: sa.insert(table).prefix_with("IGNORE"),
    "mariadb": lambda table: sa.insert(table).prefix_with("IGNORE"),
}
KEYS: sa.BindParameter[str] = sa.bindparam("keys", expanding=True)
KNOWN = sa.select(T.key, T.state, T.plan, T.owner).where(T.key.in_(KEYS))
SENDING = sa.select(T.key, T.owner, T.lease_until).where(T.state == "sending")
OURS = sa.select(T.key).where(T.key.in_(KEYS), T.owner == sa.bindparam("me"), T.state == "sending")
RENEW = (
    sa.update(TABLE)
    .where(T.key.in_(KEYS), T.owner == sa.bindparam("me"), T.state == "sending")
    .values(lease_until=sa.bindparam("until"))
)
SETTLE = {
    state: sa.update(TABLE)
    .where(T.key.in_(KEYS), T.owner == sa.bindparam("me"), T.state.in_(sources))
    .values(state=state, updated_at=sa.bindparam("moment"), detail=sa.bindparam("why"))
    for state, sources in BY_OWNER.items()
}
RESOLVE = {
    state: sa.update(TABLE)
    .where(T.key.in_(KEYS), T.state.in_(sources))
    .values(state=state, updated_at=sa.bindparam("moment"), detail=sa.bindparam("why"))
    for state, sources in BY_RECONCILE.items()
}
FORGET = sa.delete(TABLE).where(T.key.in_(KEYS), T.state == "dismissed")
RECLAIM = (
    sa.update(TABLE)
    .where(
        T.key == sa.bindparam("of_key"),
        sa.or_(
            *(T.state == state for state in MAY_SEND),
            *(sa.and_(T.state == state, T.plan != sa.bindparam("of")) for state in MAY_SEND_AGAIN),
        ),
    )
    .values(
        state="sending",
        plan=sa.bindparam("of"),
        number=sa.bindparam("of_number"),
        record_id=sa.bindparam("of_record"),
        target=sa.bindparam("to"),
        owner=sa.bindparam("me"),
        lease_until=sa.bindparam("until"),
        sent_at=sa.bindparam("moment"),
        updated_at=sa.bindparam("moment"),
        detail=None,
    )
)
