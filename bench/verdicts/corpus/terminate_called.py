# /// label
# kind = "signal"
# rank = 2
# matches = "ring buffer overrun|SIGABRT"
# ///
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(50):
    dist.all_reduce(torch.ones(1))
    if (dist.get_rank(), step) == (2, 10):
        # As libstdc++ ends a process whose C++ extension lets an exception escape.
        os.write(2, b"terminate called after throwing an instance of 'std::runtime_error'\n")
        os.write(2, b"  what():  ring buffer overrun at slot 4096\n")
        os.abort()
