# /// label
# kind = "comm_timeout"
# rank = 2
# matches = '\brank 2\b|Watchdog caught collective operation timeout'
# ///
"""Rank 2 is still evaluating when the watchdogs of the others end them, in the words of ProcessGroupNCCL."""

import os
import resource
import sys
import time

import torch
import torch.distributed as dist

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(12):
    dist.all_reduce(torch.ones(1))
    print(f"rank {rank}: step {step}", flush=True)

if rank == 2:
    print("rank 2: evaluating on 1200000 samples", flush=True)
    time.sleep(600)

time.sleep(3)
PREFIX = f"[rank{rank}]:[E1122 18:40:11.123456789 ProcessGroupNCCL.cpp"
TIMEOUT = (
    f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4213, OpType=ALLREDUCE, NumelIn=33554432, "
    "NumelOut=33554432, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
)
ENDED = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: {TIMEOUT}"
FRAMES = """Exception raised from checkTimeout at /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:688 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f1c2f57eb80 in /usr/lib/python3/torch/lib/libc10.so)
frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::milliseconds>) + 0x247 (0x7f1c308bd3a7 in libtorch_cuda.so)
frame #2: c10d::ProcessGroupNCCL::Watchdog::runLoop() + 0x1591 (0x7f1c308c1b11 in libtorch_cuda.so)
frame #3: c10d::ProcessGroupNCCL::Watchdog::run() + 0x105 (0x7f1c308c3145 in libtorch_cuda.so)
frame #4: <unknown function> + 0xdbbf4 (0x7f1c8b0dbbf4 in /lib/x86_64-linux-gnu/libstdc++.so.6)
frame #5: <unknown function> + 0x94ac3 (0x7f1c8c694ac3 in /lib/x86_64-linux-gnu/libc.so.6)
"""
sys.stderr.write(
    f"{PREFIX}:685] {TIMEOUT}\n"
    f"{PREFIX}:2252] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: 4213 "
    "PG status: last enqueued work: 4213, last completed work: 4212\n"
    f"{PREFIX}:732] Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. "
    "You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.\n"
    f"{PREFIX}:739] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, "
    "subsequent GPU operations might run on corrupted/incomplete data.\n"
    f"{PREFIX}:745] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.\n"
)
sys.stderr.flush()
time.sleep(2)
sys.stderr.write(
    f"{PREFIX}:2068] {ENDED}\n{FRAMES}\n"
    f"terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  {ENDED}\n{FRAMES}\n"
)
sys.stderr.flush()
os.abort()
