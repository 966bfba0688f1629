"""/api/docs: the API's own description, readable and tryable. Its script comes from a URL, so the policy holds."""

import threading
from typing import Any, ClassVar

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.request import Request


class OneGenerator(SchemaGenerator):
    """The description is the same for everybody and takes a third of a second, so it is made once; by one thread at a time,
    because the generator fills registries of its library that are not whole until its first run is over."""

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


class ApiDocs(SpectacularSwaggerSplitView):
    url_name = "api-schema"
    template_name = "api_docs.html"
