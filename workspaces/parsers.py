"""Parse bodies of the workspace routes: JSON, optionally gzipped, and packs, each read within a limit."""

import math
import re
import zlib
from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from common.errors import InvalidInput, Problem
from common.http import json_input

MAX_JSON_BYTES = 48 << 20  # 100,000 files with long paths
PIECE_BYTES = 1 << 16
_ODD_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")  # NUL, or possibly a lone surrogate
GZIP = 16 + zlib.MAX_WBITS


class GzippedJsonParser(BaseParser):
    """Accept `Content-Encoding: gzip`; a small body that unpacks to a large one is stopped at the limit."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        request = (parser_context or {})["request"]
        is_packed = request.headers.get("Content-Encoding", "").strip().lower() == "gzip"
        data = _inflated(stream) if is_packed else stream.read(MAX_JSON_BYTES + 1)
        if len(data) > MAX_JSON_BYTES:
            raise InvalidInput(Problem("body", None, f"is larger than {MAX_JSON_BYTES:,} bytes; send fewer files"))
        return _read(bytes(data))


class PackParser(BaseParser):
    """Return the body as a stream: it is checked while it is read."""

    media_type = "application/x-muster-pack"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        return stream


def _read(data: bytes) -> Any:
    """Parse JSON; check a list of 100,000 files value by value only where its bytes contain something odd.

    A small body always is, so that one nested too deep is refused as such.
    """
    odd: list[str] = []

    def number(text: str) -> float:
        found = float(text)
        if not math.isfinite(found):
            odd.append(text)
        return found

    found = json_input.loads(data, parse_constant=number, parse_float=number)
    if odd or len(data) <= PIECE_BYTES or _ODD_ESCAPE.search(data):
        json_input.refuse_unfit(found)
    return found


def _inflated(stream: Any) -> bytes:
    inflater, data = zlib.decompressobj(GZIP), bytearray()
    try:
        while (piece := stream.read(PIECE_BYTES)) and len(data) <= MAX_JSON_BYTES:
            data += inflater.decompress(piece, MAX_JSON_BYTES + 1 - len(data))
    except zlib.error as error:
        raise ParseError(f"the body is not valid gzip: {error}") from error
    if not inflater.eof and len(data) <= MAX_JSON_BYTES:
        raise ParseError("the gzipped body ends too early; send it again")
    return bytes(data)
