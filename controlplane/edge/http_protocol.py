"""Limit time and size of a request's head: `uvicorn --http controlplane.edge.http_protocol:BoundedHttp`.

uvicorn bounds neither: a connection that sends a header byte by byte, or one without end, would be kept forever. The
same limit applies to trailers, which are dropped. Bodies are bounded above it, by `controlplane.edge.limits.Bounded`.
"""

from asyncio import Transport
from asyncio.events import TimerHandle

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 20.0
HEAD_BYTES = (
    64 * 1024
)  # controlplane.edge.limits refuses half of it with a message; this limit ends heads that never end
PIECE_BYTES = 16 * 1024  # a socket delivers up to 256 KiB at once, which is checked in pieces of this size


class BoundedHttp(HttpToolsProtocol):
    """Run the timer from the connection, or from the first byte of a request, to the end of its head."""

    head_timer: TimerHandle | None = None  # runs while a head is awaited or arriving
    _head_bytes = 0
    _is_in_head = False
    _is_in_message = False  # from the first byte of a head to the end of its body and trailers

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            self._take(data[at : at + PIECE_BYTES])

    def _take(self, piece: bytes) -> None:
        super().data_received(piece)
        if self.transport.is_closing():
            return
        if (
            self._is_in_head or self._is_idle()
        ):  # empty lines between requests begin none, but reset uvicorn's own timer
            self._start_timer()
        if self._is_in_message:
            self._head_bytes += len(piece)
            if self._head_bytes > HEAD_BYTES:
                self.refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = self._is_in_message = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Drop trailers, which follow a chunked body: uvicorn would add them to the headers already checked."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._head_bytes = 0
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0  # trailers may follow, with the same limit as a head
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_message = False
        super().on_message_complete()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(HEAD_SECONDS, self._time_is_over)

    def _stop_timer(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def _time_is_over(self) -> None:
        self.head_timer = None
        if self._is_in_head:
            self.refuse(b"408 Request Timeout")
        else:
            self.transport.close()

    def refuse(self, status: bytes) -> None:
        """Close the connection, with a status only if no response is in progress.

        A request pipelined behind the first would otherwise put the status into the middle of the first one's response.
        """
        self._stop_timer()
        if self._is_idle():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self.transport.close()
