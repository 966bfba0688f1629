"""/api/docs: the API's own description, readable and tryable. Its script comes from a URL, so the policy holds."""

from drf_spectacular.views import SpectacularSwaggerSplitView


class ApiDocs(SpectacularSwaggerSplitView):
    url_name = "api-schema"
    template_name = "api_docs.html"
