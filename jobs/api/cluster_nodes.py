"""/api/v1/clusters/NAME/nodes: the nodes of a cluster and who holds what of them, for those who may submit to a queue there."""

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import User
from accounts.permissions import readable_teams
from common.http.rest import Paging
from jobs.analysis import cluster_nodes
from jobs.core.node_seen import ChangeKind
from jobs.core.node_summary import NodeFacts
from jobs.models import AttemptFailure, ClusterNode

from .params import user_of

HISTORY, FAILURES = 200, 50  # of one node, at most


class NodePaging(Paging):
    """Page by number: a page stays the same while new nodes arrive."""

    ordering = "id"


class HoldingSerializer(serializers.Serializer[Any]):
    """What a job holds of a node; without the job's name for all jobs of others together."""

    job = serializers.IntegerField(allow_null=True, help_text="null: jobs that you may not see, together")
    job_name = serializers.CharField(allow_null=True)
    team = serializers.CharField(allow_null=True)
    gpus = serializers.IntegerField()
    replicas = serializers.IntegerField()
    idle = serializers.IntegerField(help_text="GPUs that were not used for five minutes")
    broken = serializers.IntegerField(help_text="GPUs with Xid or ECC errors")


class ClusterNodeSerializer(serializers.Serializer[Any]):
    """A node as it was last seen, at most a minute ago while the cluster answers."""

    key = serializers.CharField(help_text="what stands for it in the address of a node: its name, or ~ and its number")
    number = serializers.IntegerField(help_text="within its cluster")
    name = serializers.CharField(help_text="node and its number where names are shown to administrators only")
    product = serializers.CharField(allow_blank=True, help_text="what its labels say of its GPUs")
    gpus = serializers.IntegerField(help_text="that it offers")
    held = serializers.IntegerField(help_text="by pods of Muster")
    others = serializers.IntegerField(allow_null=True, help_text="held by pods of others; null: that is not known")
    free = serializers.IntegerField(help_text="that new pods may take; an upper bound where others is null")
    idle = serializers.IntegerField()
    broken = serializers.IntegerField()
    is_ready = serializers.BooleanField()
    is_cordoned = serializers.BooleanField()
    is_excluded = serializers.BooleanField()
    failed_jobs = serializers.IntegerField(help_text="of several jobs within a day, by verdicts")
    problems = serializers.ListField(child=serializers.CharField(), help_text="what is wrong or unusual, in words")
    taints = serializers.ListField(child=serializers.CharField())
    levels = serializers.DictField(child=serializers.CharField(), help_text="of the topology, as templates name them")
    jobs = HoldingSerializer(many=True)


class NodeChangeSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=[kind.value for kind in ChangeKind])
    words = serializers.CharField(allow_blank=True)


class NodeBlameSerializer(serializers.Serializer[Any]):
    """A verdict that blames the node; without its job where you may not see that."""

    job = serializers.IntegerField(allow_null=True)
    job_name = serializers.CharField(allow_null=True)
    attempt = serializers.IntegerField(allow_null=True)
    kind = serializers.CharField()
    headline = serializers.CharField(allow_null=True)
    judged_at = serializers.DateTimeField()


class OneNodeSerializer(ClusterNodeSerializer):
    first_seen_at = serializers.DateTimeField()
    gone_at = serializers.DateTimeField(allow_null=True, help_text="null: it is there")
    history = NodeChangeSerializer(many=True, help_text="newest first, of a month")
    failures = NodeBlameSerializer(many=True, help_text="newest first, of a month")


class ClusterNodesView(generics.ListAPIView[ClusterNode]):
    serializer_class = ClusterNodeSerializer
    pagination_class = NodePaging
    queryset = ClusterNode.objects.none()

    def get_queryset(self) -> QuerySet[ClusterNode]:
        if not cluster_nodes.may_see(user_of(self.request), self.kwargs["name"]):
            raise Http404
        return ClusterNode.objects.filter(cluster=self.kwargs["name"], gone_at=None)

    @extend_schema(operation_id="cluster_nodes_list")
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        rows = self.paginate_queryset(self.get_queryset()) or []
        found = _described(user_of(request), self.kwargs["name"], rows)
        return self.get_paginated_response(ClusterNodeSerializer(found, many=True).data)


class ClusterNodeView(APIView):
    """A node, also one that is gone, with how it changed and which verdicts blame it."""

    @extend_schema(operation_id="cluster_nodes_retrieve", responses=OneNodeSerializer)
    def get(self, request: Request, name: str, node: str) -> Response:
        user, now = user_of(request), timezone.now()
        with_names = cluster_nodes.shows_names(user)
        row = cluster_nodes.find(name, node, with_names=with_names) if cluster_nodes.may_see(user, name) else None
        if row is None:
            raise Http404
        (found,) = _described(user, name, [row])
        teams = readable_teams(user)
        changes = cluster_nodes.history(row, most=HISTORY)
        found["history"] = [
            {"at": one.at, "kind": one.kind, "words": one.words if with_names else ""} for one in changes
        ]
        blames = cluster_nodes.failures(row, now=now, most=FAILURES)
        found["failures"] = [_blame(one, is_mine=teams is None or one.job.team_id in teams) for one in blames]
        found |= {"first_seen_at": row.first_seen_at, "gone_at": row.gone_at}
        return Response(OneNodeSerializer(found).data)


def _described(user: User, cluster: str, rows: list[ClusterNode]) -> list[dict[str, Any]]:
    """Return nodes as somebody may see them."""
    facts = cluster_nodes.of_rows(cluster, rows, now=timezone.now())
    jobs, with_names = cluster_nodes.readable_jobs(user, facts), cluster_nodes.shows_names(user)
    return [
        {
            **_in_numbers(one),
            "key": cluster_nodes.key(one, with_names=with_names),
            "name": cluster_nodes.shown(one, with_names=with_names),
            "jobs": [_holding(held) for held in cluster_nodes.jobs_on(one, jobs)],
        }
        for one in facts
    ]


def _in_numbers(one: NodeFacts) -> dict[str, Any]:
    return {
        "number": one.number, "product": one.product, "gpus": one.gpus, "held": one.slots, "others": one.others, "free": one.free,
        "idle": one.idle, "broken": one.broken, "is_ready": not one.silence, "is_cordoned": one.is_cordoned,
        "is_excluded": one.is_excluded, "failed_jobs": one.failed_jobs, "problems": [words for _, words in one.exceptions],
        "taints": list(one.taints), "levels": dict(one.levels),
    }  # fmt: skip


def _holding(one: cluster_nodes.JobOnNode) -> dict[str, Any]:
    whose: dict[str, Any] = {"job": None, "job_name": None, "team": None}
    if one.job is not None:
        whose = {"job": one.job.pk, "job_name": one.job.name, "team": one.job.team}
    return {**whose, "gpus": one.slots, "replicas": one.replicas, "idle": one.idle, "broken": one.broken}


def _blame(one: AttemptFailure, *, is_mine: bool) -> dict[str, Any]:
    whose: dict[str, Any] = {
        "job": one.job_id,
        "job_name": one.job.name,
        "attempt": one.attempt,
        "headline": one.headline,
    }
    return {
        **(whose if is_mine else dict.fromkeys(whose)), "kind": one.kind, "judged_at": one.judged_at
    }  # fmt: skip
