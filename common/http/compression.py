"""Compress answers, where their size reveals nothing."""

from django.http import HttpRequest, HttpResponse
from django.utils.text import compress_string

LEAST, RANDOM_BYTES = 500, 100  # bytes


def compressed(response: HttpResponse, request: HttpRequest) -> HttpResponse:
    """Compress an answer that shows no secret, if its reader accepts that.

    A form's token is masked anew in each answer, and a random length hides how well the rest compresses together
    with what a request contains (BREACH). Answers that show a password or a key once are not to be given here.
    """
    if len(response.content) >= LEAST and "gzip" in request.headers.get("Accept-Encoding", ""):
        response.content = compress_string(response.content, max_random_bytes=RANDOM_BYTES)
        response["Content-Encoding"] = "gzip"
        if response.has_header("Content-Length"):
            response["Content-Length"] = str(len(response.content))
    return response
