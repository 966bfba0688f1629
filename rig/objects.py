"""An S3 server for tests and trials: versitygw over a folder of this machine, built like the rig's other programs."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from embedded.ports import free_port

from . import programs
from .processes import Process, answers

SOURCES = (
    programs.GoModule(
        "github.com/versity/versitygw", "v1.8.0", {"versitygw": "github.com/versity/versitygw/cmd/versitygw"}
    ),
)
START_SECONDS = 60.0
REGION = "us-east-1"


class ObjectServer:
    """One server with buckets of its own; `process` can be killed, paused and started again."""

    def __init__(self, folder: Path):
        """Raises programs.CanNotBuild."""
        program = programs.build(SOURCES) / "versitygw"
        self.access_key, self.secret_key = "muster", secrets.token_urlsafe(20)
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.files = folder / "buckets"
        self.files.mkdir(parents=True)
        words = [str(program), "--port", f"127.0.0.1:{self.port}", "--region", REGION, "posix", str(self.files)]
        keys = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        self.process = Process("versitygw", words, log=folder / "versitygw.log", env=keys)

    def start(self) -> None:
        """Start, and return when it answers. Raises processes.DidNotStart."""
        self.process.start()
        self.process.until(lambda: answers("127.0.0.1", self.port), seconds=START_SECONDS)

    def address(self, bucket: str, *, prefix: str = "") -> str:
        """Return the value of MUSTER_FILES for a bucket, which is created."""
        (self.files / bucket).mkdir(exist_ok=True)
        key = quote(self.secret_key, safe="")
        return f"s3://{self.access_key}:{key}@{bucket}/{prefix}?endpoint={self.endpoint}&region={REGION}"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[ObjectServer]:
    server = ObjectServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.process.stop()
