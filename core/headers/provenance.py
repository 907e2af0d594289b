"""What a replay leaves on the letter that it sends, as header fields or properties.

Legal JMS property names, so that consumers can select on them.
"""

REPLAY_PREFIX = "dlq_replay_"
REPLAY_ID = "dlq_replay_id"
"""Names one sending of one letter: the ledger's key."""
REPLAY_LAP = "dlq_replay_lap"
"""Which trip it is, from 1."""
REPLAY_OF = "dlq_replay_of"
"""The record id of the letter."""
REHEARSAL = "dlq_rehearsal"
"""On copies alone: the rehearsal that sent them. They are no replays."""
