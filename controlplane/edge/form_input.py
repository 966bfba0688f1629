"""Parse forms with files as strictly as JSON: input that Django's parser fails on is refused, not a server error."""

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.exceptions import TooManyFieldsSent
from django.core.handlers.asgi import ASGIRequest
from django.http import multipartparser
from django.http.multipartparser import MultiPartParserError

_django: Any = multipartparser
MOST_LINES = 8  # in a part's header; a browser sends two
MOST_SEMICOLONS = 32  # in a part's header: parsing it takes time quadratic in their number


class BoundedParts(_django.Parser):  # type: ignore[misc]  # its module is only partly typed
    """Bound the parts of a form, and each part's header.

    Django counts fields and files, but neither the parts that are neither nor what a part's header consists of.
    """

    def __iter__(self) -> Iterator[Any]:
        most = (settings.DATA_UPLOAD_MAX_NUMBER_FIELDS or 0) + (settings.DATA_UPLOAD_MAX_NUMBER_FILES or 0) + 2
        for number, part in enumerate(_django.InterBoundaryIter(self._stream, self._separator)):
            if number > most:
                raise TooManyFieldsSent(f"a form has at most {most} parts")
            begins = part.read(_django.MAX_TOTAL_HEADER_SIZE)
            part.unget(begins)
            head = begins.partition(b"\r\n\r\n")[0]
            if head.count(b";") > MOST_SEMICOLONS or head.count(b"\n") >= MOST_LINES:
                raise MultiPartParserError("the head of a part cannot be read")
            yield _django.parse_boundary_stream(part, _django.MAX_TOTAL_HEADER_SIZE)


_django.Parser = BoundedParts  # the only place where Django lets it be replaced


class CarefulRequest(ASGIRequest):
    def parse_file_upload(self, META: Any, post_data: Any) -> Any:  # noqa: N803 - Django's name
        """Parse the form; raises MultiPartParserError, which Django answers with 400, also for unparsable part headers.

        `name="a"; filename*0=a; filename*=b` ends in a TypeError of the standard library's email package.
        """
        try:
            return super().parse_file_upload(META, post_data)
        except (TypeError, LookupError, UnicodeError) as error:
            raise MultiPartParserError("the head of a part cannot be read") from error
