"""An open job page, as the requests its browser makes: one stream of hints, and each part when its hint comes.

A browser's own drawing is not Muster's work, and on two cores it would drown what is measured; what the server does
for the page is all here. The rules are those of static/live.js and the parts' hx-trigger.
"""

import http.client
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

PARTS = {
    "ranks": ("ranks",),
    "metrics": ("charts",),
    "samples": ("ranks", "charts"),
    "logs": ("log-tail",),
    "state": ("state", "ranks", "charts", "events", "log-tail"),
}
GAPS = {"state": 0.3, "logs": 2.0, "ranks": 2.5, "metrics": 5.0, "samples": 15.0}  # seconds, as in static/live.js
_CURSOR = re.compile(r"cursor=([^\"&]+)")


class Page:
    def __init__(self, url: str, cookie: str, job: int):
        self.url, self.cookie, self.job = url, cookie, job
        self.cursor = ""
        self.requests = 0
        self.looked: dict[str, float] = {}
        self.stream: http.client.HTTPResponse | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def open(self) -> None:
        self._look(self._ask(f"/jobs/{self.job}"))
        self.stream = self._ask("/live")
        self.thread.start()

    def close(self) -> None:
        """The stream's next heartbeat ends the thread; nothing waits for it."""
        if self.stream is not None:
            self.stream.close()

    def _run(self) -> None:
        for part in self._hinted():
            try:
                self._fetch(part)
            except (OSError, http.client.HTTPException):
                return

    def _hinted(self) -> Iterator[str]:
        assert self.stream is not None
        try:
            for raw in self.stream:
                if raw.startswith(b"data: ["):
                    due = [what for job, what in json.loads(raw[6:]) if job == self.job and self._is_due(what)]
                    yield from sorted({part for what in due for part in PARTS[what]})
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            return  # closed

    def _is_due(self, what: str) -> bool:
        now = time.monotonic()
        if now < self.looked.get(what, 0.0) + GAPS[what]:
            return False
        self.looked[what] = now
        return True

    def _fetch(self, part: str) -> None:
        path = f"/jobs/{self.job}/logs?cursor={self.cursor}" if part == "log-tail" else f"/jobs/{self.job}"
        self._look(self._ask(path, **{"HX-Request": "true", "HX-Target": part}))

    def _look(self, answer: http.client.HTTPResponse) -> None:
        with answer:
            if found := _CURSOR.search(answer.read().decode()):
                self.cursor = found[1]

    def _ask(self, path: str, **headers: str) -> http.client.HTTPResponse:
        self.requests += 1
        request = urllib.request.Request(self.url + path, headers={"Cookie": self.cookie, **headers})
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=60)
        return answer
