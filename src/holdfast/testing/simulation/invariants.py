"""What must hold in every run of the simulator: the names by which reports and documents know it.

A finding of the judge is no invariant of ours; it is reported as `JUDGE` and the anomalies' names.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

JUDGE: Final = "the judge: "


class Invariant(StrEnum):
    """Something that must hold, in the words that a report says when it didn't."""

    # One copy of a log.
    LOG_RISES = "epochs and offsets rise along a log"
    ONE_BATCH = "(epoch, offset) names one batch"
    LOGS_MATCH = "logs that share a batch are the same before it"
    WATERMARK_IN_LOG = "the high watermark never passes the log end"
    WATERMARK_RISES = "the high watermark never falls"
    RECORDS_AS_CLAIMED = "where records are looked at, a batch holds what its header says"
    TIMESTAMP_OF_RECORDS = "a batch's largest timestamp is its records'"
    SURVIVES_PROCESS = "what was written survives the process"
    SURVIVES_POWER_CUT = "what was synced survives a power cut"
    RESTART_FINDS_WHOLE = "what a restart finds is whole"
    BEGINS_AT_SNAPSHOT = "the metadata log begins where a snapshot ends"

    # What is committed.
    COMMITTED_STAYS = "what is committed is never cut off"
    SAME_BELOW_WATERMARK = "what is below a high watermark is the same everywhere"
    LEADER_HOLDS_COMMITTED = "a leader holds all that is committed"
    QUORUM_HOLDS_COMMITTED = "a majority of voters holds all that is committed, synced"
    MIN_ISR = "nothing is committed under min ISR"
    COMMITTED_DELETED_ONLY = "only what is committed is deleted"
    COMPACTED_RIGHTLY = "compaction takes only what a later record has replaced"
    DUE_DELETED_ONLY = "only what has expired, or was asked for, is deleted"

    # Who leads, and who is in sync.
    ONE_LEADER = "one leader an epoch"
    LEADS_BY_RECORD = "nobody leads but by a committed record"
    CLEAN_ELECTION = "nobody who may lack something is elected unless it is allowed"
    ISR_HAS_LEADER = "the ISR contains the leader"
    ISR_OF_REPLICAS = "only replicas are in sync"
    ISR_OF_ACTIVE = "nobody joins an ISR who is fenced or leaving"
    ISR_OR_ELR = "who is in sync is not merely eligible"
    NOBODY_TWICE = "nobody is there twice"
    RECORDS_FOLLOW = "records follow one another"
    BROKER_EPOCHS_RISE = "broker epochs rise"
    IMAGES_AGREE = "no broker's image contradicts a committed record"

    # What clients see.
    ACKNOWLEDGED_COMMITTED = "nothing is acknowledged with acks=all before it is committed"
    ACKNOWLEDGED_AS_SENT = "what is acknowledged with acks=all is what was sent"
    COMMITTED_READ_ONLY = "consumers see only what is committed"
    END_AS_COMMITTED = "LATEST is not before what was committed, nor behind the log's end"
    BEGIN_AS_STARTED = "EARLIEST is where a log begins"
    READABLE_BY_TIMESTAMP = "a record is found by its timestamp"
    REFUSED_RIGHTLY = "nobody is refused what may be written"
    READ_RIGHTLY = "nobody is refused what may be read"
    SERVED_AGAIN = "who writes is served again once all is well"
    SESSION_TELLS_ALL = "an answer in a session leaves out nothing that there is to read"
    SESSION_IS_HELD = "a session takes no request that is not its next one"

    # What groups are told.
    ONE_OWNER = "a partition has one owner in a generation"
    OWNER_KEEPS = "nobody is given a partition that another one has, and is alive"
    COMMIT_KEPT = "a commit is acknowledged when it is committed"
    COMMIT_OF_MEMBER = "nobody commits but who is a member, in its generation"
    COMMIT_REFUSED = "a commit that was refused is never taken"
    COMMIT_TOLD = "what is told to be committed is so"
    COMMIT_STAYS = "a committed offset goes only with its topic or its group"
    TOLD_AS_LOGGED = "members are told what the log says of them"
    MEMBER_REFUSED_RIGHTLY = "no member is refused that is one"
    PARTITION_EPOCHS = "a partition is known by the epoch in which its member got it"
    GENERATIONS_RISE = "a group's generation never falls"
    GROUPS_READABLE = "records of groups can be read"
    GROUPS_AS_LOGGED = "a coordinator, and each replica, has of groups what is committed"

    # The run as a whole.
    NODES_LIVE = "a node does not fail by itself"
    ALL_SEEN = "the oracle saw every batch"
    ALL_ANSWERED = "every waiting request is answered"
    SESSIONS_HOLD = "a broker that nothing is done to keeps its session"
    WELL_AGAIN = "all is well again in time"
    SOMEBODY_MAY_LEAD = "a partition whose disks are all well has somebody who may lead"
    TOPIC_MADE = "a topic can be made"
