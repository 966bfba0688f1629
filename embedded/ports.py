"""Find ports: any free one, or the first free one from a number on."""

import errno
import secrets
import socket

from . import EmbeddedError

TRIES = 100
# Below the kernel's own choices (ip_local_port_range, from 32768) and Kubernetes' node ports, above Ray's workers'.
OWN = range(20_000, 30_000)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free now, for a process that takes a number. Raises EmbeddedError if none of 100 is.

    Any connection that is opened meanwhile could be given a port of the kernel's range before that process binds it.
    """
    for port in secrets.SystemRandom().sample(OWN, TRIES):
        try:
            with socket.create_server((host, port)):
                return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise EmbeddedError(f"No free port at {host} among {TRIES} of {OWN.start} to {OWN.stop - 1}.")


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
