"""Find ports: any free one, or the first free one from a number on."""

import errno
import socket

from . import EmbeddedError

TRIES = 100


def free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def listen(host: str, *, port: int) -> socket.socket:
    """Return a listening socket on the first free port from `port` on; 0 takes any. Raises EmbeddedError.

    The supervisor keeps it and passes it to the web process: while that one restarts, requests wait instead of failing,
    and no other process can take the port. `uvicorn --fd` treats it as a Unix socket and so leaves Nagle's algorithm
    on, which delays every answer on a kept connection by 40 ms; Linux copies the option to each connection (tcp(7)).
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, port + TRIES) if port else (0,):
        try:
            found = socket.create_server((host, number), family=family, backlog=512)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return found
        except OverflowError:
            break
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise EmbeddedError(
                    f"Cannot listen on {host}: {error.strerror}. Choose an address of this machine with --host."
                ) from None
    raise EmbeddedError(f"No free port at {host} from {port} on; choose another with --port.")
