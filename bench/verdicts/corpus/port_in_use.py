# /// label
# kind = ["user_code", "config"]
# rank = [0, 1, 2, 3]
# headline = "OSError: [Errno 98] Address already in use"
# certainty = "sure"
# ///
import socket
import time

import torch.distributed as dist

dist.init_process_group("gloo")
port = [0]
if dist.get_rank() == 0:
    holder = socket.create_server(("127.0.0.1", 0))
    port = [holder.getsockname()[1]]
dist.broadcast_object_list(port)
time.sleep(0.1 * dist.get_rank())
dashboard = socket.socket()
dashboard.bind(("127.0.0.1", port[0]))  # every rank serves its profile on the same port
dist.barrier()
