"""Packing what a browser uploads into the same tar.gz that the command line sends."""

import gzip
import io
import tarfile
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import IO

from django.core.files.uploadedfile import UploadedFile

from controlplane.errors import InvalidInput, Problem

MAX_PATH = 255


def pack_files(files: "Iterable[tuple[str, UploadedFile[bytes]]]") -> IO[bytes]:
    """A tar.gz of uploaded files under their paths; the same files give the same bytes.

    A browser can not say whether a file is executable: scripts that begin with #! are made so.
    """
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for path, file in sorted(((check_path(path), file) for path, file in files), key=lambda pair: pair[0]):
            data = file.read()
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o755 if data[:2] == b"#!" else 0o644
            tar.addfile(entry, io.BytesIO(data))
    packed.seek(0)
    return packed


def check_path(path: str) -> str:
    """The path as it will lie in the workspace; raises InvalidInput for one that could leave it."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in path or len(path.encode()) > MAX_PATH:
        raise InvalidInput(
            Problem(
                "files",
                path[:80],
                f"must be a relative path without .. and of at most {MAX_PATH} bytes; rename the file",
            )
        )
    return str(PurePosixPath(*parts))
