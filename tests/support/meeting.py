"""A script whose processes of all roles find the first worker by its environment; without torch, so it starts fast."""

# Arguments: how many helpers to wait for, and optionally what worker 1 fails with. A helper serves until it is ended.
MEETS = """
import os, socket, sys, time
rank, size, me = os.environ.get("RANK"), int(os.environ["WORLD_SIZE"]), os.environ["MUSTER_REPLICA"]
meeting = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

def call():
    while True:
        try:
            return socket.create_connection(meeting, timeout=60)
        except OSError:
            time.sleep(0.05)

print(me, "is rank", rank, "of", size, flush=True)
if rank == "0":
    assert os.environ["JAX_COORDINATOR_ADDRESS"] == "%s:%d" % meeting
    with socket.create_server(meeting) as server:
        peers = [server.accept()[0] for _ in range(size - 1 + int(sys.argv[1]))]
    print("met", *sorted(peer.makefile().readline().strip() for peer in peers), flush=True)
else:  # the first worker ends the job once it has met all: what others print before is in their logs
    if rank is None:
        print("serving", flush=True)
    with call() as peer:
        peer.sendall((me + "\\n").encode())
if rank is None:
    time.sleep(3600)
if len(sys.argv) > 2 and rank == "1":
    raise RuntimeError(sys.argv[2])
"""
