"""/api/v1/plans: what a submission would do, without doing it; /api/v1/job-fields: what it may say."""

from dataclasses import asdict

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from common.http.rest import listed
from jobs import frameworks, services
from jobs.core.fields import FIELDS
from jobs.core.plan import world_size

from .params import description, user_of
from .serializers import JobFieldSerializer, PlanSerializer, SubmitSerializer


class PlanView(APIView):
    @extend_schema(operation_id="plans_create", request=SubmitSerializer, responses=PlanSerializer)
    def post(self, request: Request) -> Response:
        """Roles, distribution and quota as `POST /jobs` would choose them; all problems are reported at once."""
        queue, workspace, sent = description(request)
        found = services.preview(user=user_of(request), queue=queue, sent=sent, workspace=workspace)
        return Response(PlanSerializer(_shown(found)).data)


class JobFieldsView(APIView):
    @extend_schema(operation_id="job_fields_list", responses=listed(JobFieldSerializer))
    def get(self, request: Request) -> Response:
        """The fields of a job that this server knows, with type, bounds, default and help."""
        every = [(None, FIELDS), *frameworks.OPTIONS.items()]
        rows = [{**asdict(field), "framework": name} for name, fields in every for field in fields.values()]
        return Response({"results": JobFieldSerializer(rows, many=True).data, "next": None})


def _shown(found: services.Preview) -> dict[str, object]:
    spec = found.spec
    return {
        "queue": found.queue.name,
        "framework": spec.framework,
        "roles": found.roles,
        "distribution": {
            "nodes": spec.nodes,
            "min_nodes": spec.min_nodes,
            "nproc_per_node": spec.nproc_per_node,
            "world_size": world_size(found.roles),
        },
        "asked": found.asked,
        "spec": spec.to_json(),
        "fits_now": not found.wait_reason,
        "wait_reason": found.wait_reason,
        "notes": found.notes,
    }
