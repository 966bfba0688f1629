"""/api/v1/audit."""

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from common.rest import Paging

from . import audit
from .models import AuditEntry
from .serializers import AuditQuery, AuditSerializer, user_of

_COLUMNS = {"team": "team_name", "actor": "actor_name", "act": "act"}


class AuditView(generics.ListAPIView[AuditEntry]):
    """Newest first. Platform administrators read all entries, administrators of a team those of their teams."""

    serializer_class = AuditSerializer
    pagination_class = Paging
    queryset = AuditEntry.objects.none()

    def get_queryset(self) -> QuerySet[AuditEntry]:
        asked = AuditQuery(data=self.request.query_params)
        asked.is_valid(raise_exception=True)
        found = audit.entries(user_of(self.request))
        return found.filter(**{_COLUMNS[name]: value for name, value in asked.validated_data.items() if value})

    @extend_schema(operation_id="audit_list", parameters=[AuditQuery])
    def get(self, request: Request, *args: object, **kwargs: object) -> Response:
        return super().get(request, *args, **kwargs)
