"""The Service of the API server, for pods: passes connections to its cluster address on. There is no kube-proxy here.

Standard library; runs inside a node's network: `service.py 10.96.0.1:443 10.88.1.1:6443`.
"""

import asyncio
import contextlib
import sys


async def main(here: str, there: str) -> None:
    address, _, port = here.rpartition(":")
    host, _, its = there.rpartition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            theirs, ours = await asyncio.open_connection(host, int(its))
            await asyncio.gather(_pass_on(reader, ours), _pass_on(theirs, writer))
        writer.close()

    server = await asyncio.start_server(serve, address, int(port))
    await server.serve_forever()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until this side ends, and end the other one then."""
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
