"""The rows of jobs: intent and phase, replicas and ranks, their output, and its notifications.

Postgres guards the invariants declared here.
"""

from .attempt import Attempt
from .checkpoint import Checkpoint
from .cluster_check import ClusterCheck
from .job import Job, JobEvent, new_uid
from .node import ClusterLook, ClusterNode, NodeHistory
from .output import AttemptFailure, LogBudget, LogSegment, MetricChunk, MetricRollup, RollupPosition
from .querysets import JobQuerySet, ahead_of, failed_with, in_order, turn
from .removed import RemovedJob
from .replica import Rank, RankState, Replica
from .webhook import Delivery, Webhook

__all__ = [
    "Attempt",
    "AttemptFailure",
    "Checkpoint",
    "ClusterCheck",
    "ClusterLook",
    "ClusterNode",
    "Delivery",
    "Job",
    "JobEvent",
    "JobQuerySet",
    "LogBudget",
    "LogSegment",
    "MetricChunk",
    "MetricRollup",
    "NodeHistory",
    "Rank",
    "RankState",
    "RemovedJob",
    "Replica",
    "RollupPosition",
    "Webhook",
    "ahead_of",
    "failed_with",
    "in_order",
    "new_uid",
    "turn",
]
