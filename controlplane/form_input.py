"""Forms with files, as strictly read as JSON: what Django's parser trips over is refused and no fault of ours."""

from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http.multipartparser import MultiPartParserError


class CarefulRequest(ASGIRequest):
    def parse_file_upload(self, META: Any, post_data: Any) -> Any:  # noqa: N803 - Django's name
        """Raises MultiPartParserError, which Django answers with 400, also for heads of parts that its parser cannot read.

        `name="a"; filename*0=a; filename*=b` ends in a TypeError of the standard library's email package.
        """
        try:
            return super().parse_file_upload(META, post_data)
        except (TypeError, LookupError, UnicodeError) as error:
            raise MultiPartParserError("the head of a part cannot be read") from error
