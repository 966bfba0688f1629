"""Verdicts on what Ray 2.60 printed: a driver's log as it was, but for its paths, colours and the middle of long lines."""

import textwrap
from datetime import UTC, datetime, timedelta

import pytest

from agent.frameworks.monarch import Monarch
from agent.frameworks.ray import Ray
from jobs.analysis import tracebacks
from jobs.analysis.judging import AttemptFacts, ReplicaFacts, judge
from jobs.analysis.last_words import LastOutput

T = datetime(2026, 1, 1, tzinfo=UTC)
LIBRARY = "/venv/lib/python3.11/site-packages/ray"
CYAN, RESET, YELLOW = "\x1b[36m", "\x1b[39m", "\x1b[33m"


def driver(error: str, *, line: str = "ray.get(inner.remote(17))") -> str:
    """The log of a driver that asked for a result."""
    return f"""
2026-11-25 00:58:29,953	INFO worker.py:1691 -- Using address 127.124.229.21:53383 set in the environment variable RAY_ADDRESS
2026-11-25 00:58:30,039	INFO worker.py:2038 -- Connected to Ray cluster.
Traceback (most recent call last):
  File "/code/train.py", line 8, in <module>
    {line}
  File "{LIBRARY}/_private/client_mode_hook.py", line 134, in wrapper
    return func(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^
  File "{LIBRARY}/_private/worker.py", line 1055, in get_objects
    raise value
{textwrap.dedent(error).strip(chr(10))}
"""


def said(text: str) -> LastOutput:
    lines = tuple(text.strip("\n").split("\n"))
    chain = tracebacks.last_chain(lines)
    return LastOutput(chain.lines if chain else (), lines[-40:])


def judged(text: str, *, replica: str = "head-0", others: tuple[ReplicaFacts, ...] = ()):
    failed = ReplicaFacts(replica, "failed", exit_code=1)
    facts = AttemptFacts("failed", "failed", replicas=(failed, *others))
    return judge(facts, read=lambda one: said(text) if one == failed else LastOutput())


def headline(text: str, **more) -> str:
    return judged(text, **more).headline


TASK = driver(f"""
ray.exceptions.RayTaskError(ValueError): {CYAN}ray::inner(){RESET} (pid=8986, ip=127.74.164.118)
  File "/code/train.py", line 7, in inner
    raise ValueError(f"label {{n}} is outside 0..9")
ValueError: label 17 is outside 0..9
""")
NESTED = driver(f"""
ray.exceptions.RayTaskError(ValueError): {CYAN}ray::outer(){RESET} (pid=8128, ip=127.91.138.176)
  File "/code/train.py", line 10, in outer
    return ray.get(inner.options(num_cpus=0).remote(n))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
           ^^^^^^^^^^^^^^^^^^^
                                  ^^^^^^^^^^^^^^^^^^^
ray.exceptions.RayTaskError(ValueError): {CYAN}ray::inner(){RESET} (pid=8251, ip=127.91.138.176)
  File "/code/train.py", line 7, in inner
    raise ValueError(f"label {{n}} is outside 0..9")
ValueError: label 17 is outside 0..9
""")
CAUSED = driver(f"""
ray.exceptions.RayTaskError(TrainingError): {CYAN}ray::outer(){RESET} (pid=8128, ip=127.91.138.176)
  File "/code/train.py", line 10, in outer
    return ray.get(inner.options(num_cpus=0).remote(n))
           ^^^^^^^^^^^^^^^^^^^
ray.exceptions.RayTaskError(ValueError): {CYAN}ray::inner(){RESET} (pid=8251, ip=127.91.138.176)
  File "/code/train.py", line 7, in inner
    raise ValueError(f"label {{n}} is outside 0..9")
ValueError: label 17 is outside 0..9

The above exception was the direct cause of the following exception:

{CYAN}ray::outer(){RESET} (pid=8128, ip=127.91.138.176)
  File "/code/train.py", line 12, in outer
    raise TrainingError("step 4 failed") from error
TrainingError: step 4 failed
""")
ACTOR_INIT = driver(f"""
ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, {CYAN}ray::A.__init__(){RESET} (pid=9820, ip=127.222.110.207, actor_id=52a3137acd97dd2d0b77131b01000000, repr=<train.A object at 0x7f13b1281ad0>)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/code/train.py", line 8, in __init__
    self.x = {{}}["lr"]
             ~~^^^^^^
KeyError: 'lr'
""")
ACTOR_PROCESS = driver("""
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
	class_name: A
	actor_id: cebba5f3c1fd433a4af98ab401000000
	pid: 11440
	namespace: f420517a-7d28-4b95-8a31-589def1eea46
	ip: 127.188.53.189
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed unexpectedly due to SIGSEGV or another unexpected error.
""")
ACTOR_NODE = driver("""
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
	class_name: A
	actor_id: cebba5f3c1fd433a4af98ab401000000
	namespace: f420517a-7d28-4b95-8a31-589def1eea46
The actor died because its node has died. Node Id: c3e5e76db8aa2141aa80d3f97ef0ecde260256d580708ef10bebad14
	the actor's node was terminated unexpectedly: health check failed due to missing too many heartbeats
""")
ACTOR_KILLED = driver("""
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
	class_name: A
	actor_id: cebba5f3c1fd433a4af98ab401000000
The actor is dead because it was killed by `ray.kill`.
""")
CRASHED = (
    f"{YELLOW}(raylet){RESET} A worker died or was killed while executing a task by an unexpected system error."
    + driver("ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task. Check python-core-worker-*.log files for more information.")
)  # fmt: skip
OUT_OF_MEMORY = driver("""
ray.exceptions.OutOfMemoryError: 1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 127.39.46.39, ID: 76a18a2312e11c8832c570bd7b4dbae3f2ea42e3241598765f37308d) was 5.56GB used / 23.54GB limit (0.236189)
OOM kill reason: Memory usage 5969608704B exceeded threshold of 1263825152B (5.0% of 25276502016B limit)
Object store memory usage: [- objects spillable: 0
- bytes spillable: 0

Eviction Stats:
(global lru) capacity: 5870255308
(global lru) bytes evicted: 0]
Ray killed 1 worker(s) based on the killing policy
Considered workers: [
Selected to kill: (Task: job ID=01000000, task name=f, required resources={CPU: 1}, pid=19846, actual memory used=0.07GB)
]
Top 10 memory users: PID	MEM(GB)	COMMAND
16571	0.08	/venv/bin/python train.py
19846	0.07	ray::f
Refer to the documentation on how to address the out of memory issue: ray-observability/user-guides/debug-apps/debug-memory.html. Consider provisioning more memory on this node.
""")
UNSCHEDULABLE = driver(
    "ray.exceptions.TaskUnschedulableError: The task is not schedulable: Tasks or actors with resource shapes [{GPU: 8, CPU: 1}] failed to schedule because "
    "there are not enough resources for the tasks or actors on the whole cluster. lease_id=0000000001000000ffffffffffffffffffffffffffffffffffffffffffffffff, name=f"
)
NODE_DIED = driver(
    "ray.exceptions.NodeDiedError: Task failed because the node it was running on is dead or unavailable. Node IP: 127.18.233.195, node ID: "
    "c3e5e76db8aa2141aa80d3f97ef0ecde260256d580708ef10bebad14. This can happen if the node was preempted, had a hardware failure, or its raylet crashed unexpectedly. "
    "To see node death information, use `ray list nodes --filter node_id=c3e5`."
)
UNAVAILABLE = driver(
    "ray.exceptions.ActorUnavailableError: The actor 9c7c8152e09e8602f471007701000000 is unavailable: The actor is temporarily unavailable: "
    "RpcError: RPC error: Socket closed rpc_code: 14. The task may or may not have been executed on the actor."
)
VERSIONS = f"""
Traceback (most recent call last):
  File "<string>", line 12, in <module>
  File "{LIBRARY}/scripts/scripts.py", line 3021, in main
    return cli()
           ^^^^^
  File "{LIBRARY}/_private/utils.py", line 1440, in check_version_info
    raise RuntimeError(error_message)
RuntimeError: Version mismatch: The cluster was started with:
    Ray: 2.60.0
    Python: 3.11.7
This process on node 192.0.2.2 was started with:
    Ray: 2.9.3
    Python: 3.11.7

"""
RAYLET_KILLED = """
2026-11-25 01:07:06,702	ERR scripts.py:1307 -- Some Ray subprocesses exited unexpectedly:
2026-11-25 01:07:06,703	ERR scripts.py:87 -- raylet [exit code=-9]
2026-11-25 01:07:06,703	ERR scripts.py:115 -- ----- BEGIN raylet.out tail (exit code(s)=-9 (signal 9)) -----
2026-11-25 01:07:06,704	ERR scripts.py:122 -- [2026-11-25 01:06:42,696 I 5492 5492] (raylet) store_runner.cc:50: Allowing the Plasma store to use up to 5.83373GB of memory.
[state-dump] - process_failed_runtime_env_setup_failed: 0
[2026-11-25 01:07:03,194 I 5492 5492] (raylet) worker_pool.cc:564: Started worker process with pid 6692

2026-11-25 01:07:06,704	ERR scripts.py:128 -- ----- END raylet.out tail (exit code(s)=-9 (signal 9)) -----
2026-11-25 01:07:06,704	ERR scripts.py:1315 -- Remaining processes will be killed.
"""


@pytest.mark.parametrize("text", [TASK, NESTED])
def test_an_error_in_a_task_is_the_verdict_not_where_its_result_was_asked_for(text):
    found = judged(text)
    assert found.headline == "head-0: ValueError: label 17 is outside 0..9"
    assert (found.kind, found.certainty) == ("user_code", "sure")
    assert found.traceback[0].startswith("Traceback") and "    ray.get(inner.remote(17))" in found.traceback
    assert found.traceback[-1] == "ValueError: label 17 is outside 0..9"


@pytest.mark.parametrize(("text", "innermost"), [(TASK, "inner"), (NESTED, "inner"), (ACTOR_INIT, "__init__")])
def test_the_frames_of_the_cause_are_those_of_its_own_process(text, innermost):
    cause = tracebacks.last_chain(text.split("\n")).raised[0]
    assert [(function, path) for path, function, _ in cause.frames] == [(innermost, "/code/train.py")]


def test_a_task_that_raises_from_the_error_of_another_task_keeps_both():
    assert headline(CAUSED) == "head-0: ValueError: label 17 is outside 0..9 (then TrainingError: step 4 failed)"


def test_an_error_in_an_actors_init_comes_before_the_death_of_the_actor():
    found = judged(ACTOR_INIT)
    words = "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task"
    assert found.headline == f"head-0: KeyError: 'lr' (then {words})"
    assert (found.kind, found.certainty) == ("user_code", "sure")


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (ACTOR_PROCESS, "signal", "the actor A died because its worker process has died. Worker exit type: SYSTEM_ERROR "
                                  "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."),
        (ACTOR_NODE, "node_lost", "the actor A died because its node has died. "
                                  "Node Id: c3e5e76db8aa2141aa80d3f97ef0ecde260256d580708ef10bebad14"),
        (ACTOR_KILLED, "user_code", "the actor A died because it was killed by `ray.kill`."),
    ],
)  # fmt: skip
def test_the_death_of_an_actor_is_named_with_its_cause(text, kind, words):
    for name in ("ActorDiedError", "RayActorError"):  # the second: of older releases
        found = judged(text.replace("ActorDiedError", name))
        assert (found.headline, found.kind) == (f"head-0: ray.exceptions.{name}: {words}", kind)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (CRASHED, "signal", "WorkerCrashedError: The worker died unexpectedly while executing this task."),
        (OUT_OF_MEMORY, "host_memory", "OutOfMemoryError: 1 worker(s) were killed due to the node running low on memory. "
                                       "Memory on the node (IP: 127.39.46.39) was 5.56GB used / 23.54GB limit (0.236189)"),
        (UNSCHEDULABLE, "no_place", "TaskUnschedulableError: The task is not schedulable: Tasks or actors with resource shapes "
                                    "[{GPU: 8, CPU: 1}] failed to schedule because there are not enough resources for the tasks "
                                    "or actors on the whole cluster. name=f"),
        (NODE_DIED, "node_lost", "NodeDiedError: Task failed because the node it was running on is dead or unavailable. "
                                 "Node IP: 127.18.233.195."),
        (driver("ray.exceptions.ObjectStoreFullError: Failed to put object 00ff in object store because it is full. "
                "Object size is 41943108 bytes."), "host_memory", "ObjectStoreFullError: Failed to put object"),
        (driver("ray.exceptions.OutOfDiskError: Local disk is full"), "disk", "OutOfDiskError: Local disk is full"),
        (driver("ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment."), "config", "RuntimeEnvSetupError: "),
        (driver("ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready."), "comm_timeout", "GetTimeoutError: "),
    ],
)  # fmt: skip
def test_rays_own_errors_have_a_kind(text, kind, words):
    found = judged(text)
    assert found.headline.startswith(f"head-0: ray.exceptions.{words}")
    assert found.kind == kind


def test_a_task_that_ran_out_of_gpu_memory_did_not_run_out_of_main_memory():
    text = TASK.replace("(ValueError)", "(OutOfMemoryError)")
    text = text.replace(
        "\nValueError: label 17 is outside 0..9",
        "\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
    )
    assert judged(text).kind == "device_memory"
    assert (
        judged(OUT_OF_MEMORY.replace("OutOfMemoryError: 1", "RayTaskError(OutOfMemoryError): 1")).kind
        != "device_memory"
    )


TRAIN = driver(
    """
ray.train.WorkerGroupError: Training failed due to worker errors:
[Rank 1 Error Snippet]:
A worker health check failed.
Worker info: Worker(
  actor=Actor(RayTrainWorker, 9add5ab5ffcde278d52befe001000000),
  metadata=ActorMetadata(
    hostname='vm',
    node_id='c3ab92c858e081f893ca69513cda3452bd94bc5799fe682193d7ed64',
    node_ip='127.68.63.245',
    pid=24679,
  ),
  distributed_context=DistributedContext(world_rank=1, world_size=2, local_rank=0, local_world_size=1, node_rank=1),
  log_file_path='/tmp/ray/logs/train/ray-train-app-worker-a30a45f09aba18e9c8e36ae557668bc42a2a071d20210a51a0d1ea8e.log',
)
The actor died unexpectedly before finishing this task.
	class_name: RayTrainWorker
	actor_id: 9add5ab5ffcde278d52befe001000000
	pid: 24679
	namespace: 33114260-732e-4e7b-9012-335b1aeb427f
	ip: 127.68.63.245
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, or (3) the worker crashed unexpectedly.
""",
    line="TorchTrainer(train).fit()",
)
IMPORT = driver(f"""
ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, {CYAN}ray::Sub.__init__(){RESET} (pid=20845, ip=127.194.210.40, actor_id=79a953082c966a571184ec6f01000000, repr=<train.FunctionActorManager._create_fake_actor_class.<locals>.TemporaryActor object at 0x7ff043af9f10>)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: The actor with name Sub failed to import on the worker. This may be because needed library dependencies are not installed in the worker environment:

{CYAN}ray::Sub.__init__(){RESET} (pid=20845, ip=127.194.210.40, actor_id=79a953082c966a571184ec6f01000000, repr=<train.FunctionActorManager._create_fake_actor_class.<locals>.TemporaryActor object at 0x7ff043af9f10>)
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^
ModuleNotFoundError: No module named 'onlyhere'
""")


def test_a_dead_worker_of_ray_train_is_named_with_its_rank_and_cause():
    found = judged(TRAIN.rstrip("\n") + " If the process was killed by the kernel," * 20)
    words = "rank 1: the actor RayTrainWorker died because its worker process has died. Worker exit type: SYSTEM_ERROR"
    assert found.headline.startswith(f"head-0: ray.train.WorkerGroupError: {words}")
    assert (found.kind, found.certainty) == ("signal", "likely")


def test_a_module_that_a_worker_lacks_is_the_first_cause():
    found = judged(IMPORT)
    assert found.headline.startswith(
        "head-0: ModuleNotFoundError: No module named 'onlyhere' (then ray.exceptions.ActorDiedError"
    )
    assert (found.kind, found.certainty) == ("import_error", "sure")


def test_the_message_of_the_memory_monitor_belongs_to_its_error():
    assert judged(OUT_OF_MEMORY).certainty == "sure"
    assert "Selected to kill: (Task: job ID=01000000, task name=f" in "\n".join(judged(OUT_OF_MEMORY).traceback)


NO_NODE = 'no node has what a task or an actor asks for: {"GPU": 8}; the node with most has {"GPU": 0}'


def test_a_driver_that_waited_in_vain_for_what_no_node_can_hold_names_that():
    error = "ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready."
    found = judged(f"muster: {NO_NODE}\n{driver(error)}")
    assert found.headline == f"head-0: {NO_NODE} (then {error})"
    assert (found.kind, found.certainty) == ("no_place", "likely")
    assert judged(f"muster: {NO_NODE}\n{TASK}").kind == "user_code"


def test_a_version_mismatch_is_named_with_both_versions():
    found = judged(VERSIONS, replica="worker-0")
    words = (
        "Version mismatch: the cluster has Ray 2.60.0 and Python 3.11.7, this process has Ray 2.9.3 and Python 3.11.7"
    )
    assert found.headline == f"worker-0: RuntimeError: {words}"
    assert (found.kind, found.certainty) == ("import_error", "sure")


def test_a_node_that_lost_one_of_its_processes_names_it_and_its_signal():
    found = judged(RAYLET_KILLED, replica="worker-0")
    assert (found.headline, found.kind) == ("worker-0: Ray's process raylet was ended by SIGKILL (9)", "signal")
    exited = RAYLET_KILLED.replace("=-9 (signal 9)", "=1").replace("=-9]", "=1]")
    assert headline(exited, replica="worker-0") == "worker-0: Ray's process raylet exited with code 1"


@pytest.mark.parametrize("text", [NODE_DIED, ACTOR_NODE, UNAVAILABLE])
def test_the_replica_that_failed_is_named_before_the_driver_that_lost_its_node(text):
    killed = ReplicaFacts("worker-0", "failed", "out of memory: the container was killed", exit_code=137, ended_at=T)
    driver = ReplicaFacts("head-0", "failed", exit_code=1, ended_at=T - timedelta(seconds=1))
    stopped = ReplicaFacts("worker-1", "failed", exit_code=3, ended_at=T)

    def judged_with(*replicas: ReplicaFacts):
        facts = AttemptFacts("failed", "failed", replicas=replicas)
        return judge(facts, read=lambda one: said(text) if one is driver else LastOutput())

    assert (judged_with(killed, driver).replica, judged_with(killed, driver).kind) == ("worker-0", "host_memory")
    assert (judged_with(stopped, driver).replica, judged_with(driver).replica) == ("head-0", "head-0")


def test_a_printed_remote_error_is_a_traceback_too():
    text = "\n".join(
        ["training failed:", *TASK.replace("ray.exceptions.RayTaskError(ValueError): ", "\n").split("\n")[-5:]]
    )
    assert headline(text) == "head-0: ValueError: label 17 is outside 0..9"


@pytest.mark.parametrize("framework", [Ray(), Monarch()], ids=["ray", "monarch"])
def test_a_framework_that_the_image_lacks_is_named(framework):
    reason = framework.missing(lambda program: None, env={})
    failed = ReplicaFacts("worker-0", "failed", reason, exit_code=127)
    found = judge(AttemptFacts("failed", "failed", replicas=(failed,)))
    assert (found.headline, found.kind, found.certainty) == (f"worker-0: {reason}", "import_error", "sure")
