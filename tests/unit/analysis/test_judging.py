"""Which rank failed first, with which kind and headline: judged from the ranks' output and exit status."""

import textwrap
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from jobs.analysis import tracebacks
from jobs.analysis.judging import HEADLINE_CHARACTERS, AttemptFacts, RankFacts, ReplicaFacts, judge
from jobs.analysis.last_words import LastOutput

T = datetime(2026, 1, 1, tzinfo=UTC)
PLACE = "/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp"
TIMED_OUT = f"RuntimeError: [{PLACE}/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete"
CLOSED = f"RuntimeError: [{PLACE}/pair.cc:561] Connection closed by peer [127.0.0.1]:44442. This is typically caused by a remote worker crashing."
RESET = f"RuntimeError: [{PLACE}/pair.cc:545] Read error [127.0.0.1]:43400: Connection reset by peer."
UNJOINED = "terminate called without an active exception"
WATCHDOG = (
    "[rank1]:[E1122 15:34:56.261 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=10000) ran for 10047 milliseconds before timing out."
)


def raised(*errors: str, file: str = "/code/train.py", code: str = "step()", function: str = "main") -> LastOutput:
    """Standard error after an exception; `errors` is a chain of exceptions."""
    text: list[str] = []
    for error in errors:
        if text:
            text += ["", "The above exception was the direct cause of the following exception:", ""]
        text += ["Traceback (most recent call last):", f'  File "{file}", line 9, in {function}', f"    {code}"]
        text += error.split("\n")
    return LastOutput(traceback=tuple(text), stderr=tuple(text))


def printed(text: str = "", stdout: str = "", **more) -> LastOutput:
    lines = tuple(textwrap.dedent(text).strip("\n").split("\n")) if text else ()
    return LastOutput(stderr=lines, stdout=tuple(stdout.split("\n")) if stdout else (), **more)


def rank(
    number: int, said: LastOutput | None = None, *, at: float = 10, code: int | None = 1, signal=None, **more
) -> RankFacts:
    values = {"state": "failed", "started_at": T, "ended_at": T + timedelta(seconds=at), **more}
    if said is not None and said.traceback:
        values.setdefault("error_at", values["ended_at"])
    return RankFacts(
        number, f"worker-{number // 2}", exit_code=None if signal else code, signal=signal, output=said, **values
    )


def stopped(number: int, said: LastOutput | None = None, **more) -> RankFacts:
    return rank(number, LastOutput() if said is None else said, signal=15, is_stopped=True, **{"at": 11, **more})


def judged(*ranks: RankFacts, replicas=(), **more):
    return judge(AttemptFacts("failed", "failed", ranks=ranks, replicas=tuple(replicas), **more))


def of(said: LastOutput, code: int | None = 1, signal: int | None = None):
    found = judged(rank(2, said, code=code, signal=signal), stopped(0), stopped(1), stopped(3))
    assert found.rank == 2
    return found


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("ValueError: label 17 is outside 0..9", "user_code"),
        ("IndexError: Target 17 is out of bounds.", "user_code"),
        ("RuntimeError: CUDA error: device-side assert triggered", "user_code"),
        ("AssertionError", "user_code"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)", "user_code"),
        ("ModuleNotFoundError: No module named 'timm'", "import_error"),
        ("ImportError: cannot import name 'x' from 'y'", "import_error"),
        ("OSError: libcudart.so.12: cannot open shared object file: No such file or directory", "import_error"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/train/shard-000.tar'", "data"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'conf/train.yaml'", "config"),
        ("UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte", "data"),
        ("PIL.UnidentifiedImageError: cannot identify image file '/data/1.jpg'", "data"),
        ("RuntimeError: PytorchStreamReader failed reading zip archive: not a ZIP archive", "data"),
        ("_pickle.UnpicklingError: invalid load key, '\\x00'.", "data"),
        ("omegaconf.errors.ConfigAttributeError: Missing key lr\n    full_key: optim.lr", "config"),
        ("yaml.scanner.ScannerError: mapping values are not allowed here", "config"),
        ("argparse.ArgumentError: argument --lr: expected one argument", "config"),
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("OSError: [Errno 122] Disk quota exceeded", "disk"),
        ("MemoryError", "host_memory"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 TiB for an array", "host_memory"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory", "host_memory"),
        ("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ", "host_memory"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.", "device_memory"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.", "device_memory"),
        (TIMED_OUT, "comm_timeout"),
        ("torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//worker_count", "comm_timeout"),
        (CLOSED, "connection_lost"),
        (RESET, "connection_lost"),
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94, unhandled system error\n"
         "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.", "connection_lost"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "hardware"),
        ("OSError: [Errno 27] File too large", "disk"),
        ("requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://host/resolve/main/config.json", "config"),
        ("botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the GetObject operation", "config"),
        ("botocore.exceptions.ClientError: An error occurred (NoSuchKey) when calling the GetObject operation", "data"),
        ("ValueError: part-12.jsonl, line 907: no key 'text'", "data"),
        ("ValueError: expected 3 rows, got 2", "user_code"),
        ("lightning.MisconfigurationException: `validation_step` returned a list", "user_code"),
        ("lightning.MisconfigurationException: `Trainer(devices=3)` value is not a valid input", "config"),
    ],
)  # fmt: skip
def test_an_exception_is_classified_into_a_kind(error, kind):
    found = of(raised(error))
    assert found.kind == kind
    assert found.headline.startswith("rank 2: " + error.split("\n")[0].split(": ")[0])


@pytest.mark.parametrize(("exit_code", "certainty"), [(1, "sure"), (None, "sure"), (3, "likely")])
def test_a_traceback_is_less_sure_if_its_rank_exited_with_a_custom_code(exit_code, certainty):
    """A child process printed it, or the script caught it, so something else may have ended the rank."""
    found = of(raised("ValueError: label 17 is outside 0..9"), code=exit_code)
    assert (found.headline, found.certainty) == ("rank 2: ValueError: label 17 is outside 0..9", certainty)


@pytest.mark.parametrize(
    ("below", "certainty"),
    [
        (["cannot reach the licence server"], "likely"),
        (["saving what there is"], "likely"),  # could be the real reason
        (["WARNING: 3 workers are left", "", "step 12"], "sure"),
        (["[rank2]:[W1122 12:00:00.1 ProcessGroupNCCL.cpp:1] Warning: failed to destroy the group"], "sure"),
        (["/opt/lib/queues.py:12: ResourceWarning: unable to close"], "sure"),
        ([], "sure"),
    ],
)
def test_a_traceback_is_less_sure_if_another_error_was_printed_below_it(below, certainty):
    """The traceback may be of a child process; the parent survived it and ended because of the later error."""
    said = raised("ValueError: label 17 is outside 0..9")
    said = replace(said, stderr=(*said.traceback, *below))
    found = of(said)
    assert (found.headline, found.certainty) == ("rank 2: ValueError: label 17 is outside 0..9", certainty)


@pytest.mark.parametrize(
    ("text", "prefix", "certainty"),
    [
        ("ConnectionError: no cache\nFATAL: vocabulary is missing", "", "likely"),  # caught; the next line is the cause
        ("ConnectionError: no cache\nFATAL: vocabulary is missing", "[rank2]: ", "sure"),  # torch's hook: one message
        ("ConnectionError: no cache\n\nFATAL: vocabulary is missing", "", "likely"),
        ("RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: a", "", "sure"),
    ],
)
def test_a_line_that_may_continue_the_message_or_be_another_error_lowers_certainty(text, prefix, certainty):
    said = raised(text)
    lines = tuple(f"{prefix}{line}" for line in said.traceback)
    found = of(replace(said, traceback=lines, stderr=lines))
    assert found.certainty == certainty


def test_an_error_on_standard_output_may_be_later_than_the_traceback():
    said = raised("ConnectionError: no cache")
    assert of(replace(said, stdout=("epoch 1", "FATAL: vocabulary is missing"))).certainty == "likely"
    assert of(replace(said, stdout=("epoch 1", "loss 0.3"))).certainty == "sure"


def test_permission_denied_while_writing_is_a_disk_failure_and_not_missing_data():
    error = "PermissionError: [Errno 13] Permission denied: '/checkpoints/last.bin'"
    assert of(raised(error, code='with open(path, "wb") as file:')).kind == "disk"
    assert of(raised(error, code='with open(path, "rb") as file:')).kind == "data"


def test_the_last_error_of_nccl_is_the_headline():
    error = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94, unhandled cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 719 'unspecified launch failure'"  # fmt: skip
    assert of(raised(error)).headline == "rank 2: torch.distributed.DistBackendError: Cuda failure 719 'unspecified launch failure'"  # fmt: skip


def test_the_end_of_a_long_reason_is_in_the_headline():
    reason = f"the image a cannot be pulled (ErrImagePull): failed to extract {'layer' * 100}: no space left on device"
    found = judge(AttemptFacts(phase="starting", replicas=(ReplicaFacts("worker-0", "pending", reason),)))
    assert len(found.headline) == HEADLINE_CHARACTERS
    assert found.headline.startswith("worker-0: the image a cannot be pulled (ErrImagePull): failed to extract layer")
    assert found.headline.endswith("layer: no space left on device")


def test_a_traceback_formatted_by_loguru():
    text = """
        2026-11-22 19:52:00.417 | ERROR    | __main__:<module>:62 - An error has been caught in function '<module>':
        Traceback (most recent call last):

        > File "/code/train.py", line 62, in <module>
            main()
            └ <function main at 0x7f3a5c1d2e80>

          File "/code/train.py", line 42, in is_better
            return loss < best
                   │      └ None
                   └ 0.4375

        TypeError: '<' not supported between instances of 'float' and 'NoneType'
    """
    found = of(LastOutput(printed(text).stderr[1:], printed(text).stderr))
    assert found.headline == "rank 2: TypeError: '<' not supported between instances of 'float' and 'NoneType'"
    assert (found.kind, found.certainty) == ("user_code", "sure")


def test_a_traceback_that_begins_behind_a_progress_bar():
    first, *rest = raised("TypeError: step() missing 1 required positional argument: 'mask'").traceback
    found = of(LastOutput((f"Epoch 3:  12%|##      | 12/100 [00:03<00:22,  3.9it/s][rank2]: {first}", *rest)))
    assert (found.kind, found.certainty) == ("user_code", "sure")
    assert found.headline == "rank 2: TypeError: step() missing 1 required positional argument: 'mask'"


def test_source_lines_of_a_truncated_traceback_are_not_the_headline():
    found = of(
        printed('Traceback (most recent call last):\n  File "/code/train.py", line 39, in <module>\n    main()'), 1
    )
    assert (found.headline, found.kind, found.certainty) == ("rank 2 exited with code 1", "unknown", "likely")


@pytest.mark.parametrize(
    ("words", "headline"),
    [
        ('  File "/code/train.py", line 10\n    init_process_group("gloo"\n                      ^\nSyntaxError: \'(\' was never closed',
         "rank 2: SyntaxError: '(' was never closed"),
        ("    return 1 + deepest(tree)\n" + '[rank2]:   File "/code/tree.py", line 8, in deepest\n[rank2]:     return 1 + deepest(tree)\n' * 3
         + "[rank2]: RecursionError: maximum recursion depth exceeded", "rank 2: RecursionError: maximum recursion depth exceeded"),
    ],
)  # fmt: skip
def test_a_traceback_without_its_first_line(words, headline):
    found = of(printed(words), 1)
    assert (found.headline, found.kind, found.certainty) == (headline, "user_code", "sure")
    assert found.traceback[-1] == headline.removeprefix("rank 2: ")
    assert of(printed(words), None, 9).kind == "signal"  # killed long after the error


def test_the_headline_is_the_error_itself():
    found = of(raised("ValueError: label 17 is outside 0..9"))
    assert (found.headline, found.certainty) == ("rank 2: ValueError: label 17 is outside 0..9", "sure")
    assert found.explanation == "rank 2 exited with code 1"
    assert found.traceback[0] == "Traceback (most recent call last):"


def test_the_first_cause_of_a_chain_counts_and_the_last_is_named_too():
    found = of(raised("ValueError: label 17 is outside 0..9", "train.TrainingError: step 4 failed"))
    assert found.headline == "rank 2: ValueError: label 17 is outside 0..9 (then train.TrainingError: step 4 failed)"


def test_a_system_exit_that_an_error_interrupted_is_not_its_cause():
    lines = (*raised("SystemExit: 0").traceback, "", "During handling of the above exception, another exception occurred:", "",
             *raised("PermissionError: [Errno 13] Permission denied: '/out/1.json'").traceback)  # fmt: skip
    assert of(LastOutput(lines)).headline == "rank 2: PermissionError: [Errno 13] Permission denied: '/out/1.json'"


def test_source_locations_of_gloo_are_left_out_of_the_headline():
    assert (
        of(raised(TIMED_OUT)).headline
        == "rank 2: RuntimeError: Timed out waiting 8000ms for recv operation to complete"
    )


@pytest.mark.parametrize(
    ("said", "code", "signal", "kind", "words"),
    [
        (printed("usage: train.py [-h] --lr LR\ntrain.py: error: argument --lr: invalid float value: 'x'"), 2, None,
         "config", "train.py: error: argument --lr: invalid float value: 'x'"),
        (printed("Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option: --foo"), 2, None,
         "config", "Error: No such option: --foo"),
        (printed("Key 'lrr' is not in struct\n    full_key: optim.lrr"), 1, None, "config", "Key 'lrr' is not in struct"),
        (printed("/usr/bin/python3: can't open file '/code/trian.py': [Errno 2] No such file or directory"), 2, None,
         "config", "can't open file '/code/trian.py'"),
        (printed("/usr/bin/python3: No module named trian"), 1, None, "import_error", "No module named trian"),
        (printed("ERROR: 3 of 8 shards are missing"), 4, None, "data", "ERROR: 3 of 8 shards are missing (exited with code 4)"),
        (printed("loss is not finite at step 40, giving up"), 1, None, "user_code", "loss is not finite at step 40"),
        (printed("", stdout="step 3\nERROR: loss is nan"), 3, None, "user_code", "ERROR: loss is nan (exited with code 3)"),
        (printed("", stdout="step 3\nstep 4"), 3, None, "unknown", "exited with code 3"),
        (printed("error: HF_TOKEN is not set"), 1, None, "config", "HF_TOKEN is not set"),
        (printed("FATAL Flags parsing error:\n  flag --batch_size=large: invalid literal for int()\nPass --helpshort to see help on flags."),
         1, None, "config", "flag --batch_size=large: invalid literal for int()"),
        (printed("Could not find 'model/vit'\n\nAvailable options:\n\tresnet\n\nSet the environment variable HYDRA_FULL_ERROR=1 for more"),
         1, None, "config", "Could not find 'model/vit'"),
        (printed('{"level": "info", "event": "step"}\n{"level": "critical", "exc_info": "Traceback (most recent call last):\\n  File \\"/code/a.py\\", '
                 'line 3, in main\\n    a, b = batch\\nValueError: not enough values to unpack"}'), 70, None,
         "user_code", "rank 2: ValueError: not enough values to unpack (exited with code 70)"),
        (printed(""), None, 11, "signal", "was ended by SIGSEGV (11): a crash in native code"),
        (printed("Fatal Python error: Segmentation fault\n\nCurrent thread 0x0 (most recent call first):"), None, 11,
         "signal", "Fatal Python error: Segmentation fault"),
        (printed("terminate called after throwing an instance of 'std::runtime_error'\n  what():  boom"), None, 6,
         "signal", "std::runtime_error: boom"),
        (printed("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc"), None, 6,
         "host_memory", "std::bad_alloc"),
        (printed(f"{WATCHDOG}\nterminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 0 Rank 1] "
                 "Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught collective operation timeout"),
         None, 6, "comm_timeout", "Watchdog caught collective operation timeout"),
        (printed(f"epoch 2\nvalidation loss did not improve, giving up\n{UNJOINED}", stdout="epoch 1"), None, 6,
         "user_code", "validation loss did not improve, giving up (aborted by a native thread as it exited)"),
        (printed(f"error: HF_TOKEN is not set\n{UNJOINED}"), None, 6, "config", "HF_TOKEN is not set"),
        (printed(f"{UNJOINED}", stdout="step 1"), None, 6, "signal", "aborted by a native thread that still ran"),
        (printed("", oom_kills=0), None, 9, "signal", "was ended by SIGKILL (9)"),
        (printed("", oom_kills=1), None, 9, "host_memory", "the kernel ran out of memory"),
    ],
)  # fmt: skip
def test_an_end_without_a_traceback(said, code, signal, kind, words):
    found = of(said, code, signal)
    assert (found.kind, words in found.headline) == (kind, True), found.headline


def test_a_kill_is_sure_only_if_the_kernels_oom_count_is_available():
    assert of(printed("", oom_kills=0), None, 9).certainty == "sure"
    assert of(printed("", oom_kills=1), None, 9).certainty == "likely", "it may have been another process"
    assert of(printed(""), None, 9).certainty == "likely"


def test_an_exception_in_a_thread_does_not_override_the_last_error_line():
    text = ["Exception in thread Thread-1 (f):", *raised("ValueError: in thread").traceback]
    chain = tracebacks.last_chain(text)
    assert chain.is_harmless
    found = of(LastOutput(traceback=tuple(text), stderr=(*text, "no more data")))
    assert found.headline == "rank 2: no more data (exited with code 1)"


class TestWhoWasFirst:
    def test_the_earliest_own_failure(self):
        found = judged(
            rank(0, raised("KeyError: 'b'"), at=9), rank(3, raised("ValueError: a"), at=5), stopped(1), stopped(2)
        )
        assert (found.rank, found.certainty) == (3, "sure")

    def test_an_echo_never_hides_the_cause_however_early_it_ended(self):
        found = judged(
            rank(0, raised(CLOSED), at=5), rank(1, raised(RESET), at=6), rank(3, raised("ValueError: a"), at=9)
        )
        assert (found.rank, found.kind) == (3, "user_code")

    def test_a_rank_that_was_stopped_while_its_own_error_ended_it(self):
        found = judged(
            rank(0, raised(CLOSED), at=5), stopped(2, raised("ValueError: a"), error_at=T + timedelta(seconds=4))
        )
        assert (found.rank, found.kind, found.certainty) == (2, "user_code", "likely")

    def test_the_silent_rank_is_blamed_and_not_the_ranks_that_waited_for_it(self):
        found = judged(
            rank(3, raised(TIMED_OUT), at=5), stopped(0, raised(TIMED_OUT)), stopped(1, raised(TIMED_OUT)), stopped(2)
        )
        assert (found.rank, found.kind, found.certainty) == (2, "comm_timeout", "likely")
        assert found.headline == (
            "rank 2: silent while rank 3 waited for it (RuntimeError: Timed out waiting 8000ms for recv operation to complete)"
        )
        assert found.traceback_rank == 3

    def test_a_silent_rank_with_a_dead_thread_is_explained_by_that_threads_error(self):
        died = ("Exception in thread prefetch:", *raised("TypeError: encode() got an unexpected keyword").traceback)
        found = judged(rank(3, raised(TIMED_OUT), at=5), stopped(0, raised(TIMED_OUT)), stopped(2, LastOutput(died)))
        assert (found.rank, found.kind, found.certainty) == (2, "user_code", "likely")
        assert found.headline == "rank 2: TypeError: encode() got an unexpected keyword"
        assert (found.explanation, found.traceback_rank) == ("rank 2: silent while rank 3 waited for it", 2)

    def test_a_distributed_checkpoint_names_the_rank_that_could_not_write(self):
        quoted = raised("OSError: [Errno 30] Read-only file system: '/ckpt/2'").traceback
        lines = (
            "CheckpointException: CheckpointException ranks:dict_keys([2])",
            f"{quoted[0]} (RANK 2)",
            *quoted[1:],
        )
        found = judged(*(rank(number, LastOutput(lines, lines), at=5 + number) for number in range(4)))
        assert (found.rank, found.kind, found.certainty) == (2, "disk", "likely")
        assert found.headline == "rank 2: OSError: [Errno 30] Read-only file system: '/ckpt/2'"

    def test_the_silent_rank_is_found_with_agents_of_the_previous_release(self):
        """They send no output, only the time at which a stopped rank's traceback began."""
        old = {"is_stopped": True, "signal": 15, "is_connection_error": True, "error_at": T}
        found = judged(rank(3, None, is_connection_error=True), rank(0, None, **old), rank(1, None, **old), stopped(2))
        assert (found.rank, found.certainty) == (2, "likely")

    def test_the_rank_that_left_with_code_0(self):
        found = judged(
            rank(3, raised(RESET), at=5),
            stopped(0, raised(CLOSED)),
            stopped(1),
            rank(2, LastOutput(), state="succeeded", code=0, at=4),
        )
        assert (found.rank, found.kind, found.certainty) == (2, "connection_lost", "likely")
        assert "left with exit code 0 while rank 3 still needed it" in found.headline

    def test_a_rank_that_left_may_end_shortly_after_its_connections_closed(self):
        found = judged(
            rank(3, raised(RESET), at=5), stopped(0), stopped(1), rank(2, LastOutput(), state="succeeded", code=0, at=6)
        )
        assert (found.rank, "left with exit code 0" in found.headline) == (2, True)

    def test_in_a_monitored_barrier_the_error_that_names_the_late_rank_counts(self):
        late = "RuntimeError: [Rank 0]: Rank 2 failed to pass monitoredBarrier in 4000 ms"
        passed = "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0"  # fmt: skip
        found = judged(rank(1, raised(passed), at=5), rank(0, raised(late), at=6), stopped(2), stopped(3))
        assert (found.rank, found.kind) == (2, "comm_timeout")
        assert "rank 0 waited" in found.headline

    def test_a_monitored_barrier_names_the_late_rank(self):
        error = (
            "RuntimeError: [Rank 0]: Rank 2 failed to pass monitoredBarrier in 4000 ms\n Original exception:\n"
            + TIMED_OUT
        )
        found = judged(rank(0, raised(error), at=5), stopped(1, raised(CLOSED)), stopped(2), stopped(3))
        assert (found.rank, found.kind) == (2, "comm_timeout")

    def test_with_connection_errors_only_the_first_failure_is_likely_but_not_sure(self):
        found = judged(*(rank(number, raised(CLOSED), at=5 + number) for number in range(4)))
        assert (found.rank, found.kind, found.certainty) == (0, "connection_lost", "likely")

    def test_a_lost_replica_is_blamed_before_the_ranks_that_lost_their_connection(self):
        gone = ReplicaFacts("worker-1", "lost", "its node gpu-3 does not answer")
        found = judged(rank(0, raised(CLOSED)), rank(1, raised(CLOSED)), stopped(2), stopped(3), replicas=[gone])
        assert (found.rank, found.replica, found.kind, found.certainty) == (None, "worker-1", "node_lost", "sure")

    def test_a_killed_launcher_is_not_blamed_on_its_ranks(self):
        gone = ReplicaFacts("worker-0", "failed", signal=9, ended_at=T)
        found = judged(stopped(0), stopped(1), rank(2, raised(CLOSED)), rank(3, raised(CLOSED)), replicas=[gone])
        assert (found.rank, found.replica, found.kind) == (None, "worker-0", "signal")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("the image registry/x:1 cannot be pulled (ErrImagePull): not found", "image"),
        ("the image registry/x:1 cannot be pulled (ImagePullBackOff): not found", "image"),
        ("volume not mounted, claim data: MountVolume.SetUp failed for volume", "volume"),
        ('no place for it: persistentvolumeclaim "data" not found', "volume"),
        ("no place for it: 0 of 9 nodes fit: 9 without enough free nvidia.com/gpu; ask for less, or wait", "no_place"),
        ("its node cannot set it up: failed to create pod sandbox", "start_timeout"),
    ],
)
def test_replicas_that_never_started_give_the_reason_and_kind(reason, kind):
    waiting = (ReplicaFacts("worker-0", "pending", reason), ReplicaFacts("worker-1", "pending"))
    late = AttemptFacts("queued", "start_timeout", "not all replicas were running within 300 s", replicas=waiting)
    found = judge(late)
    assert (found.kind, found.certainty, reason in found.headline) == (kind, "sure", True)


def test_while_starting_a_reason_is_likely_and_without_one_there_is_no_verdict():
    waiting = (ReplicaFacts("worker-0", "pending", "the image x cannot be pulled (ErrImagePull): not found"),)
    found = judge(AttemptFacts("starting", replicas=waiting))
    assert (found.kind, found.certainty) == ("image", "likely")
    assert judge(AttemptFacts("starting", replicas=(ReplicaFacts("worker-0", "pending"),))) is None


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("out of memory: it used more than its limit of 64Gi; raise memory in LIMITS, or use less", "host_memory"),
        ('evicted from node a: Usage of EmptyDir volume "tmp" exceeds the limit "20Gi".', "disk"),
        ("a pod of a higher priority took its place (PreemptionByScheduler): ...", "preempted"),
        ("its node is gone (DeletionByPodGC): PodGC: node not found", "node_lost"),
        ("command not found: trian.py", "config"),
        ("Terminated: Pod was terminated in response to imminent node shutdown.", "node_lost"),
        ("UnexpectedAdmissionError: Allocate failed due to no healthy devices present", "hardware"),
    ],
)
def test_a_replica_ended_by_the_cluster(reason, kind):
    found = judged(replicas=[ReplicaFacts("worker-1", "failed", reason, exit_code=127)])
    assert (found.kind, found.replica, found.headline) == (kind, "worker-1", f"worker-1: {reason}")


def test_a_command_that_fails_after_its_ranks_succeeded_is_told_apart():
    ranks = [rank(number, code=0, state="succeeded") for number in (0, 1)]
    found = judged(*ranks, replicas=[ReplicaFacts("worker-0", "failed", exit_code=1)])
    assert found.headline == found.explanation == "worker-0 exited with code 1, although its ranks succeeded"


def test_a_replica_that_the_cluster_ended_is_named_though_muster_ends_the_others():
    drained = "its node is being emptied (EvictionByEvictionAPI): Eviction API: evicting"
    ours, theirs = ReplicaFacts("worker-0", "failed", signal=15), ReplicaFacts("worker-1", "failed", drained, signal=15)
    found = judge(AttemptFacts("stopping", "failed", "worker-1 was ended", replicas=(ours, theirs)))
    assert (found.replica, found.kind) == ("worker-1", "node_lost")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("deadline", "deadline"), ("preempted", "preempted"), ("start_timeout", "start_timeout")],
)
def test_an_attempt_that_muster_itself_ended(reason, kind):
    found = judge(AttemptFacts("stopping", reason, "why in words", ranks=(stopped(0), stopped(1))))
    assert (found.kind, found.certainty, found.rank, found.headline) == (kind, "sure", None, "why in words")


@pytest.mark.parametrize("reason", ["completed", "cancelled", "suspended"])
def test_a_completed_cancelled_or_suspended_attempt_has_no_verdict(reason):
    assert judge(AttemptFacts("stopping", reason, ranks=(rank(0, raised("ValueError: a")),))) is None


@pytest.mark.parametrize(
    "text", ["a" * 60_000, "error " * 10_000, "x: " * 20_000, "[" * 60_000, "Timed out waiting " * 3000]
)
def test_hostile_output_is_judged_in_linear_time(text):
    of(raised(f"RuntimeError: {text}"))
    of(printed(text))
    of(printed(text), None, 6)


def printed_below(*below: str, error: str = "KeyError: 'tokenizer'") -> LastOutput:
    said = raised(error)
    text = ("loading", *said.traceback, *below)
    # Agents send the output that follows a traceback together with it.
    return LastOutput(traceback=text[1:], stderr=text[-40:])


FATAL = "fatal: could not reach the parameter server"


@pytest.mark.parametrize(
    "below",
    [
        ["step 11", "step 12", "INFO: saving", FATAL],
        ["step 11", "could not reach the parameter server"],
        [FATAL],
        ["", FATAL, "", "/opt/lib/queues.py:12: ResourceWarning: unclosed file", "[W1122 12:00:00.1 socket.cpp:460] Broken pipe"],
        [f"step {number}" for number in range(100)] + [FATAL],
        ["line"] * 20 + ["unable to save the model"],
        [FATAL, "Exception ignored in: <function Pool.__del__ at 0x7f>", *raised("OSError: closed").traceback],
    ],
)  # fmt: skip
def test_an_error_printed_long_after_a_caught_traceback_is_the_failure(below):
    found = of(printed_below(*below))
    words = next(line for line in below if "could not" in line or "unable to save" in line)
    assert found.headline == f"rank 2: {words} (after KeyError: 'tokenizer')"
    assert found.certainty == "likely"


@pytest.mark.parametrize(
    "below",
    [
        [],
        ["step 12", "WARNING: could not flush"],
        ["/opt/lib/queues.py:12: ResourceWarning: unable to close"],
        ["[W1122 12:00:00.1 ProcessGroupNCCL.cpp:1] Warning: failed to destroy the group"],
        ["step 12", "saving"],
        ["Exception ignored in: <function Pool.__del__ at 0x7f>", *raised("OSError: closed").traceback],
        ["Error in atexit._run_exitfuncs:", *raised("ValueError: I/O operation on closed file").traceback],
        ["  known are: a, b", "  error: c is missing"],
    ],
)
def test_a_traceback_that_ended_the_process_is_the_failure(below):
    found = of(printed_below(*below))
    assert found.headline == "rank 2: KeyError: 'tokenizer'"


def test_output_below_a_traceback_of_the_torch_hook_does_not_replace_it():
    lines = tuple(f"[rank2]: {line}" for line in raised("KeyError: 'tokenizer'").traceback)
    found = of(LastOutput(lines, (*lines, "step 12", FATAL)))
    assert found.headline == "rank 2: KeyError: 'tokenizer'"


@pytest.mark.parametrize("code", [3, None])
def test_output_below_a_traceback_counts_only_with_exit_code_1(code):
    assert of(printed_below("step 12", FATAL), code=code).headline == "rank 2: KeyError: 'tokenizer'"


def test_last_words_without_a_kind_take_the_kind_of_the_error_above_them():
    assert of(printed_below("error: giving up", error="OSError: [Errno 28] No space left on device")).kind == "disk"
    assert of(printed_below("error: HF_TOKEN is not set")).kind == "config"
    assert of(printed_below("error: giving up", error=CLOSED)).kind == "user_code", "it is no echo any more"


def test_a_warning_at_interpreter_exit_does_not_count_as_progress():
    warning = "/opt/lib/queues.py:12: ResourceWarning: unclosed file"
    said = printed_below("error: giving up", warning, error="OSError: [Errno 28] No space left on device")
    assert (of(said).kind, "giving up" in of(said).headline) == ("disk", True)


def test_an_error_survived_for_several_steps_gives_no_kind_to_last_words():
    said = printed_below(
        "step 11", "step 12", "fatal: loss is nan", error="OSError: [Errno 28] No space left on device"
    )
    assert of(said).kind == "user_code"


@pytest.mark.parametrize(("seconds", "certainty"), [(0.5, "sure"), (5, "likely")])
def test_a_traceback_is_less_sure_if_its_rank_continued_to_print(seconds, certainty):
    """On standard output, which the agent does not send with the exit status."""
    said = raised("KeyError: 'warmup'")
    at = datetime(2026, 11, 23, tzinfo=UTC)
    rank = RankFacts(
        2, "worker-0", "failed", exit_code=1, error_at=at, ended_at=at + timedelta(seconds=seconds + 0.1),
        last_line_at=at + timedelta(seconds=seconds), output=said,
    )  # fmt: skip
    found = judge(AttemptFacts(ranks=(rank,)))
    assert (found.headline, found.certainty) == ("rank 2: KeyError: 'warmup'", certainty)
    hooked = tuple(f"[rank2]: {line}" for line in said.traceback)
    assert judge(AttemptFacts(ranks=(replace(rank, output=LastOutput(hooked, hooked)),))).certainty == "sure"


def test_a_traceback_within_a_message_is_the_first_cause():
    inner = raised("KeyError: 'x'", file="/code/data.py").traceback
    found = of(raised("RuntimeError: worker failed:\n" + "\n".join(inner)))
    assert (found.rank, found.kind) == (2, "user_code")
    assert found.headline == "rank 2: KeyError: 'x' (then RuntimeError: worker failed)"
    assert found.traceback[-1] == "KeyError: 'x'"


UNRESOLVED = "[W1127 socket.cpp:764] [c10d] The IPv6 network addresses of (no-such-host, 12399) cannot be retrieved (gai error: -2 - Name or service not known)."
CLIENT = "torch.distributed.DistNetworkError: The client socket has timed out after 6000ms while trying to connect to ({}, 12399)."
OF_ITS_OWN_NETWORK = {
    "listen": "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 12355, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    "bind": "torch.distributed.DistNetworkError: The server socket has failed to bind. port: 80, useIpv6: 0, code: -13, name: EACCES, message: permission denied",
    "python": "OSError: [Errno 98] Address already in use",
    "interface": "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ib7",
    "resolve": "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>",
}


@pytest.mark.parametrize("error", OF_ITS_OWN_NETWORK.values(), ids=OF_ITS_OWN_NETWORK)
def test_a_rank_that_cannot_listen_bind_or_resolve_is_named_and_not_the_one_that_waited_for_it(error):
    waited = rank(1, raised(CLIENT.format("127.0.0.1")), at=9, is_connection_error=True)
    found = judged(rank(0, raised(error), at=10), waited)
    assert (found.rank, found.kind) == (0, "config")


def test_a_name_that_cannot_be_resolved_is_the_error_of_the_rank_that_has_it():
    own = raised(CLIENT.format("no-such-host"))
    own = replace(own, stderr=(UNRESOLVED, *own.stderr))
    found = judged(rank(0, raised(CLIENT.format("127.0.0.1")), at=9, is_connection_error=True), rank(1, own, at=10))
    assert (found.rank, found.kind) == (1, "config")
    assert (
        found.headline == "rank 1: cannot resolve no-such-host, to connect to its port 12399: Name or service not known"
    )


def test_a_peer_that_never_listened_is_still_a_timeout():
    assert judged(rank(0, raised(CLIENT.format("worker-0")), is_connection_error=True)).kind == "comm_timeout"
