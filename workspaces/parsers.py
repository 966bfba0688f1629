"""Bodies of the workspace routes: JSON that may come gzipped, and packs, each read within a bound."""

import json
import math
import zlib
from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from controlplane.errors import InvalidInput, Problem

MAX_JSON_BYTES = 48 << 20  # 100,000 files with long paths
PIECE_BYTES = 1 << 16
GZIP = 16 + zlib.MAX_WBITS


class GzippedJsonParser(BaseParser):
    """`Content-Encoding: gzip` is understood; a small body that unpacks to a large one is stopped at the bound."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        request = (parser_context or {})["request"]
        is_packed = request.headers.get("Content-Encoding", "").strip().lower() == "gzip"
        data = _inflated(stream) if is_packed else stream.read(MAX_JSON_BYTES + 1)
        if len(data) > MAX_JSON_BYTES:
            raise InvalidInput(Problem("body", None, f"is larger than {MAX_JSON_BYTES:,} bytes; send fewer files"))
        try:
            found = json.loads(data, parse_constant=_refused, parse_float=_finite)
            if b"\\u" in data:
                json.dumps(found, ensure_ascii=False).encode()  # half a character fails here
            return found
        except (ValueError, RecursionError) as error:
            raise ParseError(f"the body is no JSON: {error}") from error


class PackParser(BaseParser):
    """The body as it comes: it is checked while it is read."""

    media_type = "application/x-muster-pack"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        return stream


def _refused(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refused(text)


def _inflated(stream: Any) -> bytes:
    inflater, data = zlib.decompressobj(GZIP), bytearray()
    try:
        while (piece := stream.read(PIECE_BYTES)) and len(data) <= MAX_JSON_BYTES:
            data += inflater.decompress(piece, MAX_JSON_BYTES + 1 - len(data))
    except zlib.error as error:
        raise ParseError(f"the body is no gzip: {error}") from error
    if not inflater.eof and len(data) <= MAX_JSON_BYTES:
        raise ParseError("the gzipped body ends too early; send it again")
    return bytes(data)
