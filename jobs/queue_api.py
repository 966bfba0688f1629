"""/api/v1/queues: quota and what is used of it. Here and not in `queues`, which knows nothing of jobs."""

from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from rest_framework import mixins, serializers, viewsets

from accounts.models import User
from controlplane.api import Paging
from queues.models import Queue
from queues.readable import readable_queues

from .models import Job


class QueueSerializer(serializers.ModelSerializer[Queue]):
    team = serializers.CharField(source="team.name")
    used = serializers.IntegerField(help_text="slots held by jobs now")

    class Meta:
        model = Queue
        fields = ("id", "name", "team", "cluster", "resource", "nominal", "used", "gpus_per_node", "is_open")
        read_only_fields = fields


def with_use(queues: QuerySet[Queue]) -> QuerySet[Any]:
    """Queues with `used`: a sum over rows, never a counter."""
    held = (
        Job.objects.holding_quota().filter(queue=OuterRef("pk")).order_by().values("queue").annotate(total=Sum("slots"))
    )
    return queues.annotate(used=Coalesce(Subquery(held.values("total")), 0))


class QueueViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Queue]):
    queryset = Queue.objects.none()
    serializer_class = QueueSerializer
    pagination_class = Paging
    lookup_field = "name"

    def get_queryset(self) -> QuerySet[Queue]:
        assert isinstance(self.request.user, User)
        return with_use(readable_queues(self.request.user))
