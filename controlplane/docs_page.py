"""/api/docs: the API's own description, to read and to try out. Its script is loaded from a URL, so the CSP holds."""

import threading
from typing import Any, ClassVar

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.request import Request


class OneGenerator(SchemaGenerator):
    """Generate the schema once: it is the same for all users and takes a third of a second.

    One thread at a time, because the generator fills registries of its library that are incomplete until its first run
    ends.
    """

    _lock = threading.Lock()
    _made: ClassVar[dict[str, Any] | None] = None

    def get_schema(self, request: Request | None = None, public: bool = False) -> Any:
        with self._lock:
            if request is None or self.api_version is not None:
                return super().get_schema(request, public)  # type: ignore[no-untyped-call]
            if OneGenerator._made is None:
                OneGenerator._made = super().get_schema(request, public)  # type: ignore[no-untyped-call]
            return OneGenerator._made


class ApiSchema(SpectacularAPIView):
    generator_class = OneGenerator

    def _get_version_parameter(self, request: Request) -> None:
        """There is one version: what `?version=` says would only get into a header, with whatever it contains."""


class ApiDocs(SpectacularSwaggerSplitView):
    url_name = "api-schema"
    template_name = "api_docs.html"
