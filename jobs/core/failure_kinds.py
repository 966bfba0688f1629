"""The kinds of failures, and the messages by which each is recognised. Pure.

The messages are those that Python, torch (1.13 to 2.15), NCCL, gloo, the kernel and Kubernetes print. docs/verdicts.md
explains each kind and its remedy.
"""

import re
from enum import StrEnum


class Kind(StrEnum):
    USER_CODE = "user_code"
    IMPORT_ERROR = "import_error"
    CONFIG = "config"
    DATA = "data"
    DISK = "disk"
    HOST_MEMORY = "host_memory"
    DEVICE_MEMORY = "device_memory"
    COMM_TIMEOUT = "comm_timeout"
    CONNECTION_LOST = "connection_lost"
    SIGNAL = "signal"
    HARDWARE = "hardware"
    IMAGE = "image"
    VOLUME = "volume"
    NO_PLACE = "no_place"
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"
    DEADLINE = "deadline"
    START_TIMEOUT = "start_timeout"
    UNKNOWN = "unknown"


class Certainty(StrEnum):
    SURE = "sure"
    LIKELY = "likely"


Classification = tuple[Kind, Certainty]

# Such a failure reports that another rank is gone, or late: never the first failure if there is another one.
ECHOES = frozenset({Kind.COMM_TIMEOUT, Kind.CONNECTION_LOST})


MOST_CHARACTERS = 3000  # of a message; its beginning identifies it


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


# In order: the first match counts. These messages count whatever exception carries them.
_WORDS: tuple[tuple[Kind, Certainty, re.Pattern[str]], ...] = (
    (Kind.HARDWARE, Certainty.SURE, _any(
        r"\bXid\b", r"uncorrectable (NVLink|ECC)", r"ECC error", r"fallen off the bus", r"\bGPU is lost\b",
        r"hardware stack error", r"Unable to determine the device handle", r"Machine check", r"\bMCE\b.{0,40}hardware error",
        r"NVLink error", r"row remapp",
    )),
    (Kind.DEVICE_MEMORY, Certainty.SURE, _any(
        r"\b(CUDA|HIP|XPU|MPS backend) out of memory", r"CUDA error: out of memory", r"cudaErrorMemoryAllocation",
        r"Cuda failure \d{0,4} ?'out of memory'", r"RESOURCE_EXHAUSTED: (Out of memory|.{0,80}allocat)",
    )),
    (Kind.DEVICE_MEMORY, Certainty.LIKELY, _any(r"(CUBLAS|CUDNN|CUSOLVER)_STATUS_ALLOC_FAILED")),
    (Kind.HOST_MEMORY, Certainty.LIKELY, _any(
        r"DataLoader worker \(pid.{0,40}\) is killed by signal: (Killed|Bus error)", r"insufficient shared memory \(shm\)",
        r"unable to (write to|open|mmap|allocate|resize).{0,40}/(torch|dev/shm)_?.{0,120}No space left on device",
        r"unable to allocate shared memory",
    )),
    (Kind.HOST_MEMORY, Certainty.SURE, _any(
        r"Cannot allocate memory", r"DefaultCPUAllocator: (can't|not enough)", r"\bstd::bad_alloc\b", r"\bENOMEM\b",
        r"Unable to allocate .{1,60} for an array", r"Out of memory: Killed process", r"\bOOMKilled\b", r"oom-kill",
    )),
    (Kind.DISK, Certainty.SURE, _any(
        r"No space left on device", r"Disk quota exceeded", r"Read-only file system", r"database or disk is full",
        r"Stale file handle", r"There is not enough space on the disk", r"\[Errno 27\] File too large",
    )),
    (Kind.DISK, Certainty.LIKELY, _any(
        r"PytorchStreamWriter failed writing", r"inline_container\.cc.{0,40}unexpected pos", r"\[Errno 5\] Input/output error",
    )),
    (Kind.IMPORT_ERROR, Certainty.SURE, _any(
        r"cannot open shared object file", r"undefined symbol: ", r"version [`']?(GLIBC|GLIBCXX|CXXABI)\S{0,20}' not found",
        r"^\S{0,300}: No module named \S", r"Error while finding module specification for",
    )),
    # The process's own address: before all that is said about peers.
    (Kind.CONFIG, Certainty.SURE, _any(
        r"server socket has failed to (listen|bind)", r"\bEADDRINUSE\b", r"Address already in use", r"\bEADDRNOTAVAIL\b",
        r"Cannot assign requested address", r"Unable to find (interface|address) for", r"no socket interface found",
        r"error while attempting to bind on address",
    )),
    (Kind.CONFIG, Certainty.LIKELY, _any(
        r"Temporary failure in name resolution", r"Name or service not known", r"\bgaierror\b", r"nodename nor servname",
        r"getaddrinfo failed",
    )),
    (Kind.COMM_TIMEOUT, Certainty.SURE, _any(
        r"Watchdog caught collective operation timeout", r"collective operation timeout", r"failed to pass monitoredBarrier",
        r"Timed out waiting \d{1,12} ?ms for", r"Application timeout caused pair closure", r"\bSocket ?Timeout\b",
        r"wait timeout after \d", r"The client socket has (timed out|failed to connect)", r"\bNCCL timeout\b",
        r"Timed out (after|waiting)[^\n]{0,80}(clients?|workers?|store|rendezvous|barrier|key)", r"\bRendezvousTimeoutError\b",
        r"connect\(\) timed out", r"Connect(ion)? timeout[^\n]{0,40}\[", r"Store::?wait.{0,40}time",
        r"barrier[^\n]{0,40}timed? ?out", r"successfully reached monitoredBarrier, but received errors", r"HeartbeatMonitor|heartbeat monitor.{0,40}timed? ?out",
    )),
    (Kind.CONNECTION_LOST, Certainty.SURE, _any(
        r"Connection closed by (remote )?peer", r"(Read|Write) error \[[^\]]{1,60}\]", r"remote process exited", r"ncclRemoteError",
        r"NCCL communicator was aborted", r"socketPollConnect|socketProgress|socketStartConnect", r"Socket recv failed",
        r"Connection was likely closed", r"Gloo connectFullMesh failed", r"failed to recv, got 0 bytes", r"\bDistNetworkError\b",
        r"\bDistStoreError\b", r"recvValue failed|sendBytes failed|recvBytes failed",
        r"network error or a remote process",
        r"\bRendezvousConnectionError\b", r"\bRendezvousClosedError\b", r"failed to connect to .{1,80} store",
    )),
    (Kind.CONNECTION_LOST, Certainty.LIKELY, _any(
        r"ncclSystemError", r"Connection reset by (remote )?peer", r"Connection refused", r"Broken pipe", r"Connection timed out",
        r"No route to host", r"Network is unreachable",
        r"Max retries exceeded with url", r"Remote end closed connection", r"Server disconnected",
    )),
    (Kind.USER_CODE, Certainty.LIKELY, _any(
        r"device-side assert triggered", r"illegal memory access was encountered", r"misaligned address",
        r"unspecified launch failure",
    )),
    (Kind.HARDWARE, Certainty.LIKELY, _any(
        r"CUDA-capable device\(s\) is/are busy or unavailable", r"CUDA error: unknown error", r"\bCUDA unknown error",
        r"ncclUnhandledCudaError|unhandled cuda error", r"NVML: (GPU|Unknown)",
    )),
    (Kind.CONFIG, Certainty.LIKELY, _any(
        r"No CUDA GPUs are available", r"Found no NVIDIA driver", r"Torch not compiled with CUDA enabled",
        r"CUDA driver version is insufficient", r"no CUDA-capable device is detected", r"invalid device ordinal",
        r"no kernel image is available for execution", r"Duplicate GPU detected", r"Invalid device id",
        r"torch\.cuda\.is_available\(\) is False", r"Default process group has not been initialized",
        r"environment variable \S{1,80} (expected|is not set|must be set)",
        r"\b40[13] Client Error\b", r"\bgated repo\b", r"\((AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|403)\)",
        r"\binvalid (API key|credentials|access token)\b",
    )),
    (Kind.DATA, Certainty.LIKELY, _any(r"\b404 Client Error\b", r"\((NoSuchKey|NoSuchBucket|404)\)")),
    (Kind.SIGNAL, Certainty.LIKELY, _any(r"DataLoader worker \(pid.{0,60}(is killed by signal|exited unexpectedly)",
        r"terminated abruptly while the future was running", r"terminated with signal SIG")),
    (Kind.DATA, Certainty.SURE, _any(
        r"PytorchStreamReader failed", r"invalid load key", r"Ran out of input", r"image file is truncated", r"cannot identify image file",
        r"not a gzipped file", r"File is not a zip file", r"Bad CRC", r"file signature not found", r"truncated file",
        r"Unable to (synchronously )?open (file|object)", r"Weights only load failed", r"HeaderTooLarge|InvalidHeader|MetadataIncompleteBuffer",
        r"Parquet magic bytes not found", r"checkpoint file is corrupted", r"No data left in file", r"file is not a database",
        r"database disk image is malformed", r"Couldn't find a dataset script", r"broken data stream", r"CRC32? (check|error|mismatch)",
        r"Not a (\S{1,20} )?(TFRecord|parquet|feather|arrow)", r"corrupt(ed)? (record|file|image|data|shard|archive|input)",
    )),
)  # fmt: skip

# Reasons that the cluster gives for a replica (jobs/clusters/kubernetes/facts/pod_reasons.py writes most of them). In order:
# a full EmptyDir is a matter of disk, though it is called a volume, and a pod refused for a broken device is not one of
# lacking capacity.
_REASONS: tuple[tuple[Kind, Certainty, re.Pattern[str]], ...] = (
    (Kind.DISK, Certainty.SURE, _any(r"EmptyDir volume .{0,80}exceeds the limit", r"ephemeral[- ](local )?storage", r"DiskPressure")),
    (Kind.HARDWARE, Certainty.SURE, _any(r"no healthy devices present", r"cannot allocate unhealthy devices")),
    (Kind.IMAGE, Certainty.SURE, _any(r"\bno such image: ", r"^the image .{0,400} can ?not be pulled", r"\b(ErrImagePull|ImagePullBackOff|InvalidImageName)\b")),
    (Kind.VOLUME, Certainty.SURE, _any(
        r"\bFailed(Mount|AttachVolume)\b", r"persistentvolumeclaim", r"\bvolume\b.{0,200}(can ?not|not found|unbound|mount|attach|affinity)",
        r"unbound immediate PersistentVolumeClaims", r"MountVolume", r"shared folder", r"the volume \S",
    )),
    (Kind.NO_PLACE, Certainty.SURE, _any(r"^no place for it", r"nodes are available", r"^OutOf\w+", r"UnexpectedAdmissionError")),
    (Kind.HOST_MEMORY, Certainty.SURE, _any(r"^out of memory:", r"low on resource: memory", r"\bOOMKilled\b")),
    (Kind.PREEMPTED, Certainty.SURE, _any(r"PreemptionByScheduler", r"a pod of a higher priority took its place")),
    (Kind.NODE_LOST, Certainty.SURE, _any(
        r"^its node .{0,300}(does not answer|is gone|is not ready|was deleted)", r"DeletionByTaintManager|DeletionByPodGC|TerminationByKubelet",
        r"EvictionByEvictionAPI", r"\bNodeLost\b", r"imminent node shutdown", r"node is shutting down", r"\bNodeShutdown\b", r"^its node (?!can ?not )", r"^evicted from node",
    )),
    (Kind.IMPORT_ERROR, Certainty.SURE, _any(r"^\w{1,40} is not installed here: ")),
    (Kind.CONFIG, Certainty.SURE, _any(
        r"^command not found", r"^no such folder (in the workspace|on this machine)", r"^cannot start in \S", r"can ?not start \S", r"executable file not found", r"CreateContainerConfigError", r"is not executable",
        r"permission denied",
    )),
    (Kind.CONFIG, Certainty.LIKELY, _any(r"^the container can ?not be created", r"^the replica can ?not start")),
    (Kind.DEADLINE, Certainty.SURE, _any(r"DeadlineExceeded")),
)  # fmt: skip


def of_reason(reason: str) -> Classification | None:
    """Return the kind of a reason given by a cluster, or by a replica's agent."""
    return next(((kind, certainty) for kind, certainty, pattern in _REASONS if pattern.search(reason)), None)


def of_words(text: str) -> Classification | None:
    """Return the kind by the message alone, whatever printed it."""
    text = text[:MOST_CHARACTERS]
    return next(((kind, certainty) for kind, certainty, pattern in _WORDS if pattern.search(text)), None)
