"""Stored files in a bucket of an S3-compatible server, as a storage of Django (MUSTER_FILES).

django-storages makes a client for each thread; ours live as long as a request, and making one takes 50 ms of CPU. boto3's
clients are safe to share (boto3 guide, "Clients"), so each process has one.
"""

import errno
import io
import os
import posixpath
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import IO, Any, cast

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import File
from django.core.files.storage import Storage
from django.utils.deconstruct import deconstructible

CONNECT_SECONDS, ANSWER_SECONDS = 3, 20
TRIES = 3
MEMORY_BYTES = 4 * 2**20  # of a file that is read as a whole; larger ones go to a temporary file
_MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
# In this thread: concurrency of uploads is the number of requests, not a multiple of it.
_IN_THIS_THREAD = TransferConfig(use_threads=False, multipart_threshold=64 * 2**20, multipart_chunksize=32 * 2**20)


@deconstructible
class ObjectStorage(Storage):
    """Files of one bucket, below a prefix. Errors are OSError, as of a folder, with the server's words.

    A name that exists is replaced: batches that are sent again write the same bytes.
    """

    def __init__(
        self,
        *,
        bucket: str,
        prefix: str = "",
        endpoint: str = "",
        region: str = "",
        access_key: str = "",
        secret_key: str = "",
    ):
        """Without keys boto3 looks for them itself: AWS_* variables, a role of the pod or the machine."""
        self.bucket, self.prefix = bucket, prefix.strip("/")
        self._endpoint, self._region = endpoint or None, region or None
        self._keys = (access_key or None, secret_key or None)
        self._making = threading.Lock()

    @cached_property
    def _client(self) -> Any:
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            retries={"mode": "standard", "max_attempts": TRIES},
            max_pool_connections=50,
            # servers other than AWS's rarely have host names for buckets, nor checksums beyond the signature
            s3={"addressing_style": "path" if self._endpoint else "auto"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with self._making:  # sessions are not safe to share, and this happens once
            return boto3.session.Session().client(
                "s3", endpoint_url=self._endpoint, region_name=self._region, config=config,
                aws_access_key_id=self._keys[0], aws_secret_access_key=self._keys[1],
            )  # fmt: skip

    def read_slice(self, name: str, *, offset: int, size_bytes: int) -> bytes:
        """Return part of a file by a request for just that part. Raises OSError."""
        if not size_bytes:
            return b""
        wanted = f"bytes={offset}-{offset + size_bytes - 1}"
        with self._os_errors(name):
            found = self._client.get_object(Bucket=self.bucket, Key=self._key(name), Range=wanted)
            return cast(bytes, found["Body"].read())

    def touch(self, name: str) -> None:
        """Set a file's time to now, by writing it again: not every server does when it is copied onto itself. Raises OSError."""
        with self._os_errors(name):
            found = self._client.get_object(Bucket=self.bucket, Key=self._key(name))
            self._client.put_object(Bucket=self.bucket, Key=self._key(name), Body=found["Body"].read())

    # What Django's storages have:

    def exists(self, name: str) -> bool:
        """Return whether there is such a file, or a folder with files."""
        try:
            self._head(name)
        except FileNotFoundError:
            return any(True for _ in self._pages(name, most=1))
        return True

    def delete(self, name: str) -> None:
        with self._os_errors(name):
            self._client.delete_object(Bucket=self.bucket, Key=self._key(name))

    def listdir(self, path: str) -> tuple[list[str], list[str]]:
        """Return the folders and the files in a folder; none of one that does not exist, since there are no folders."""
        folders, files = [], []
        for page in self._pages(path):
            folders += [posixpath.basename(one["Prefix"].rstrip("/")) for one in page.get("CommonPrefixes", ())]
            files += [posixpath.basename(one["Key"]) for one in page.get("Contents", ())]
        return folders, files

    def size(self, name: str) -> int:
        return int(self._head(name)["ContentLength"])

    def get_modified_time(self, name: str) -> datetime:
        return cast(datetime, self._head(name)["LastModified"])

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        return name

    def _open(self, name: str, mode: str = "rb") -> "File[bytes]":
        if mode != "rb":
            raise ValueError(f"files are written by `save`, not opened as {mode}")
        content = tempfile.SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 - closed by whoever opened the file
        with self._os_errors(name):
            self._client.download_fileobj(self.bucket, self._key(name), content, Config=_IN_THIS_THREAD)
        content.seek(0)
        return File(cast(IO[bytes], content), name)

    def _save(self, name: str, content: "File[bytes]") -> str:
        with self._os_errors(name):
            self._client.upload_fileobj(_Kept(content), self.bucket, self._key(name), Config=_IN_THIS_THREAD)
        return name

    def _head(self, name: str) -> dict[str, Any]:
        with self._os_errors(name):
            return cast(dict[str, Any], self._client.head_object(Bucket=self.bucket, Key=self._key(name)))

    def _pages(self, path: str, *, most: int = 1000) -> Iterator[dict[str, Any]]:
        """Yield pages of a folder's listing that hold something."""
        key = self._key(path) if path else self.prefix
        listing = self._client.get_paginator("list_objects_v2")
        asked = listing.paginate(
            Bucket=self.bucket, Prefix=f"{key}/" if key else "", Delimiter="/", PaginationConfig={"PageSize": most}
        )
        with self._os_errors(path):
            for page in asked:
                if page.get("Contents") or page.get("CommonPrefixes"):
                    yield page

    def _key(self, name: str) -> str:
        if name.startswith("/") or ".." in name.split("/"):
            raise SuspiciousFileOperation(f"{name} is no name of a stored file")
        return f"{self.prefix}/{name}" if self.prefix else name

    @contextmanager
    def _os_errors(self, name: str) -> Iterator[None]:
        """Turn boto3's errors into those of a folder."""
        try:
            yield
        except ClientError as error:
            about = error.response.get("Error", {})
            if about.get("Code") in _MISSING:
                raise FileNotFoundError(errno.ENOENT, f"bucket {self.bucket} has no such object", name) from error
            words = f"bucket {self.bucket}: {about.get('Code', 'error')}: {about.get('Message', '')}"
            raise OSError(errno.EIO, words, name) from error
        except BotoCoreError as error:
            raise OSError(errno.EIO, f"bucket {self.bucket}: {error}", name) from error


class _Kept(io.RawIOBase):
    """What is uploaded: boto3 closes what it was given, and our callers go on using it."""

    def __init__(self, content: "File[bytes]"):
        self._content = content

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._content.seekable()

    def read(self, size: int = -1) -> bytes:
        return cast(bytes, self._content.read(size))

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        return int(self._content.seek(place, whence))

    def tell(self) -> int:
        return int(self._content.tell())
