"""/api/v1/audit."""

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from common.http.filters import StrictFilters
from common.http.rest import Paging

from . import audit
from .filters import AuditFilters
from .models import AuditEntry
from .serializers import AuditSerializer, user_of


class AuditView(generics.ListAPIView[AuditEntry]):
    """Newest first. Platform administrators read all entries, administrators of a team those of their teams."""

    serializer_class = AuditSerializer
    pagination_class = Paging
    filter_backends = [StrictFilters]
    filterset_class = AuditFilters
    queryset = AuditEntry.objects.none()

    def get_queryset(self) -> QuerySet[AuditEntry]:
        return audit.entries(user_of(self.request))

    @extend_schema(operation_id="audit_list")
    def get(self, request: Request, *args: object, **kwargs: object) -> Response:
        return super().get(request, *args, **kwargs)
