"""Verdicts on what torchmonarch 0.6 printed: a controller's log as it was, but for its paths and repeated lines."""

import pytest

from jobs.analysis import tracebacks
from jobs.analysis.judging import AttemptFacts, ReplicaFacts, judge
from jobs.analysis.last_words import LastOutput

LIBRARY = "/venv/lib/python3.11/site-packages/monarch"
NATIVE = (
    "[-]I1125 01:53:32.062539 hyperactor/src/proc.rs:844] <proc <9vVexyzePWD>@inproc://7> event, name: ProcStatus, status: Created\n"
    "[-]E1125 01:53:32.064587 monarch_hyperactor/src/actor/async_actor/dispatch.rs:72] message loop error: "
    "RuntimeError: serving client.local<2w8YcRLLZhF>@tcp://[::1]:33187: signal channel closed\n"
)
CLOSED = f"""\
  File "{LIBRARY}/_src/actor/actor_mesh.py", line 1490, in _dispatch_loop
    msg = await receiver.recv()
          ^^^^^^^^^^^^^^^^^^^^^
EOFError: Channel closed

"""


def failed_call(cause: str) -> str:
    """An endpoint that raised."""
    return f"""\
No cached path provided
Traceback (most recent call last):
  File "/code/train.py", line 25, in <module>
    workers.go.call().get()
  File "{LIBRARY}/_src/actor/future.py", line 265, in get
    raise e from None
monarch._src.actor.actor_mesh.ActorError: Actor call workers.go failed.
 {cause}
{CLOSED}{NATIVE}"""


def ended(how: str) -> str:
    """An actor whose process ended, or that could not be made."""
    return f"""\
Traceback (most recent call last):
  File "{LIBRARY}/_src/actor/future.py", line 260, in get
    v = coro.block_on()
        ^^^^^^^^^^^^^^^
monarch._rust_bindings.monarch_hyperactor.supervision.SupervisionError: Endpoint call workers.go() failed, The actor <root>.<__main__.Worker workers{{'hosts': 1/2, 'gpus': 0/1}}> and all its descendants have failed:
  {how}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/code/train.py", line 25, in <module>
    workers.go.call().get()
  File "{LIBRARY}/_src/actor/future.py", line 264, in get
    self._status = _Exception(e)
                   ^^^^^^^^^^^^^
  File "<string>", line 1, in <lambda>
KeyboardInterrupt
{NATIVE}{CLOSED}"""


RAISED = failed_call(f"""\
Traceback of where the remote call failed (most recent call last):
  File "{LIBRARY}/_src/actor/actor_mesh.py", line 1822, in handle_sync
    result = the_method(*args, **kwargs)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/code/train.py", line 13, in go
    raise ValueError("label 17 is outside 0..9")
ValueError: label 17 is outside 0..9
""")
NESTED = failed_call("""\
Traceback of where the remote call failed (most recent call last):
  File "/code/train.py", line 18, in go
    {}["a"]
    ~~^^^^^
KeyError: 'a'

The above exception was the direct cause of the following exception:

Traceback of where the remote call failed (most recent call last):
  File "/code/train.py", line 19, in go
    raise RuntimeError("cannot read the batch") from error
RuntimeError: cannot read the batch
""")
IN_INIT = ended(f"""\
actor explicitly aborted due to: Traceback (most recent call last):
    File "{LIBRARY}/_src/actor/actor_mesh.py", line 1871, in _prepare
      self.instance = Class(*args, **kwargs)
                      ^^^^^^^^^^^^^^^^^^^^^^
    File "/code/train.py", line 9, in __init__
      raise ValueError("label 17 is outside 0..9")
  ValueError: label 17 is outside 0..9

""")


def judged(text: str):
    lines = tuple(text.strip("\n").split("\n"))
    chain = tracebacks.last_chain(lines)
    controller = ReplicaFacts("controller-0", "failed", exit_code=1)
    said = LastOutput(chain.lines if chain else (), lines[-40:])
    return judge(AttemptFacts("failed", "failed", replicas=(controller,)), read=lambda one: said)


@pytest.mark.parametrize(
    ("text", "headline", "kind"),
    [
        # Likely: below the traceback stands what Monarch prints while it ends, and so might a program that goes on.
        (RAISED, "ValueError: label 17 is outside 0..9", ("user_code", "likely")),
        (NESTED, "KeyError: 'a' (then RuntimeError: cannot read the batch)", ("user_code", "likely")),
        (IN_INIT, "ValueError: label 17 is outside 0..9", ("user_code", "likely")),
        (
            ended("the process this actor was running on exited with non-zero code 3"),
            "SupervisionError: the process of the actor workers (hosts 1/2, gpus 0/1) exited with code 3",
            ("user_code", "likely"),
        ),
        (
            ended("the process this actor was running on failed: Killed(sig=11)"),
            "SupervisionError: the process of the actor workers (hosts 1/2, gpus 0/1) was ended by SIGSEGV (11): a crash in native code",
            ("signal", "likely"),
        ),
    ],
    ids=["raised", "raised from another", "in __init__", "exited", "crashed"],
)  # fmt: skip
def test_the_actors_own_error_is_the_headline(text, headline, kind):
    found = judged(text)
    assert found.headline == f"controller-0: {headline}"
    assert (found.kind, found.certainty) == kind


def test_the_frames_of_script_and_actor_are_shown():
    lines = "\n".join(judged(RAISED).traceback)
    assert "workers.go.call().get()" in lines and 'raise ValueError("label 17 is outside 0..9")' in lines
    assert "hyperactor" not in lines


def test_an_interrupt_without_an_actors_end_stays_what_it_is():
    text = 'Traceback (most recent call last):\n  File "/code/train.py", line 3, in <module>\n    wait()\nKeyboardInterrupt\n'
    assert judged(text).headline == "controller-0: KeyboardInterrupt"
