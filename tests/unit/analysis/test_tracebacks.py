"""Tracebacks as Python 3.11 and torch print them: which errors form a chain, and which output is not part of it."""

import textwrap
import time

import pytest

from jobs.analysis import traceback_view, tracebacks

LIBRARY = "/venv/lib/python3.11/site-packages/torch"


def lines(text: str) -> list[str]:
    return textwrap.dedent(text).strip("\n").split("\n")


PLAIN = """
Traceback (most recent call last):
  File "/code/train.py", line 9, in <module>
    step(17)
  File "/code/train.py", line 3, in step
    raise ValueError(f"label {x} is outside 0..9")
ValueError: label 17 is outside 0..9
"""
CAUSED = f"""{PLAIN}
The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/code/train.py", line 7, in <module>
    raise TrainingError("step 4 failed") from e
train.TrainingError: step 4 failed
"""
DURING = """
Traceback (most recent call last):
  File "/code/train.py", line 2, in <module>
    {}["adamx"]
    ~~^^^^^^^^^
KeyError: 'adamx'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/code/train.py", line 4, in <module>
    raise ValueError("unknown optimizer adamx")
ValueError: unknown optimizer adamx
known are: sgd, adam
"""
SYNTAX = """
  File "/code/train.py", line 2
    def f(:
          ^
SyntaxError: invalid syntax
"""
GROUP = """
  + Exception Group Traceback (most recent call last):
  |   File "/code/group.py", line 7, in <module>
  |     raise ExceptionGroup("two things", es)
  | ExceptionGroup: two things (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/code/group.py", line 1, in a
    |     def a(): raise ValueError("label 17 is outside 0..9")
    |              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    | ValueError: label 17 is outside 0..9
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/code/group.py", line 2, in b
    |     def b(): raise KeyError("x")
    |              ^^^^^^^^^^^^^^^^^^^
    | KeyError: 'x'
    +------------------------------------
"""
CAUSES_IN_GROUP = """
  + Exception Group Traceback (most recent call last):
  |   File "/code/group.py", line 7, in <module>
  |     raise ExceptionGroup("one thing", es)
  | ExceptionGroup: one thing (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/code/group.py", line 1, in a
    |     {}["tokens"]
    | KeyError: 'tokens'
    |
    | The above exception was the direct cause of the following exception:
    |
    | Traceback (most recent call last):
    |   File "/code/group.py", line 2, in a
    |     raise OSError("shard 2 unreadable") from error
    | OSError: shard 2 unreadable
    +------------------------------------
"""
WORKER = f"""
Traceback (most recent call last):
  File "/code/train.py", line 9, in <module>
    for x in DataLoader(D(), batch_size=2, num_workers=1): pass
  File "{LIBRARY}/_utils.py", line 804, in reraise
    raise exception
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "{LIBRARY}/utils/data/_utils/fetch.py", line 54, in fetch
    data = [self.dataset[idx] for idx in possibly_batched_index]
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/code/train.py", line 6, in __getitem__
    raise ValueError("label 17 is outside 0..9")
ValueError: label 17 is outside 0..9

"""
POOL = """
multiprocessing.pool.RemoteTraceback:
\"\"\"
Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 125, in worker
    result = (True, func(*args, **kwds))
                    ^^^^^^^^^^^^^^^^^^^
  File "/code/pool.py", line 2, in f
    def f(x): raise ValueError("label 17 is outside 0..9")
ValueError: label 17 is outside 0..9
\"\"\"

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/code/pool.py", line 4, in <module>
    with mp.Pool(1) as p: p.map(f,[1])
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 774, in get
    raise self._value
ValueError: label 17 is outside 0..9
"""
SPAWN = f"""
Traceback (most recent call last):
  File "/code/spawn.py", line 4, in <module>
    mp.spawn(f, nprocs=1)
  File "{LIBRARY}/multiprocessing/spawn.py", line 220, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "/code/spawn.py", line 2, in f
    def f(i): raise ValueError("label 17 is outside 0..9")
ValueError: label 17 is outside 0..9

"""
RICH = """
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /code/train.py:9 in <module>                                                 │
│                                                                              │
│ ❱ 9 step(17)                                                                 │
╰──────────────────────────────────────────────────────────────────────────────╯
ValueError: label 17 is outside 0..9
"""
LABEL = "ValueError: label 17 is outside 0..9"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PLAIN, [LABEL]),
        (CAUSED, [LABEL, "train.TrainingError: step 4 failed"]),
        (DURING, ["KeyError: 'adamx'", "ValueError: unknown optimizer adamx"]),
        (SYNTAX, ["SyntaxError: invalid syntax"]),
        (GROUP, [LABEL, "KeyError: 'x'", "ExceptionGroup: two things (2 sub-exceptions)"]),
        (
            CAUSES_IN_GROUP,
            ["KeyError: 'tokens'", "OSError: shard 2 unreadable", "ExceptionGroup: one thing (1 sub-exception)"],
        ),
        (WORKER, [LABEL, "ValueError: Caught ValueError in DataLoader worker process 0."]),
        (POOL, [LABEL, LABEL]),
        (RICH, [LABEL]),
    ],
)
@pytest.mark.parametrize("prefix", ["", "[rank2]: ", "[default2]:", "[default2]:[rank2]: ", "\x1b[31m"])
def test_the_root_cause_comes_first_with_any_prefix_before_each_line(text, words, prefix):
    chain = tracebacks.last_chain([prefix + line for line in lines(text)])
    assert [one.words for one in chain.raised] == words
    assert not any(prefix and prefix in line for line in chain.lines)


def test_the_error_of_a_spawned_process_is_the_cause_of_its_parents_error():
    chain = tracebacks.last_chain(lines(SPAWN))
    assert [one.short_name for one in chain.raised] == ["ValueError", "ProcessRaisedException"]
    assert chain.raised[0].words == LABEL
    assert chain.raised[0].frames[-1][:2] == ("/code/spawn.py", "f")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Error(s) in loading state_dict for Net:\n\tsize mismatch for a: 3", "E: Error(s) in loading state_dict for Net: size mismatch for a: 3"),
        ("2 validation errors for Config\nlr\n  Input should be a number", "E: 2 validation errors for Config lr"),
        ("boom\nand more", "E: boom"),
        ("only this:", "E: only this:"),
        ("\n\n", "E"),
    ],
)  # fmt: skip
def test_a_line_that_announces_another_is_not_alone(message, words):
    assert tracebacks.Raised("E", message).words == words


def test_the_errors_of_a_group_are_shown_as_words_between_their_frames():
    shown = traceback_view.shown(lines(GROUP))
    assert not any(part.look == "library" for part in shown)
    words = [line.strip(" |+-") for part in shown if part.look == "words" for line in part.lines]
    assert {"ExceptionGroup: two things (2 sub-exceptions)", LABEL, "KeyError: 'x'", "1", "2"} <= set(words)
    own = [line for part in shown if part.look == "own" for line in part.lines]
    assert len(own) == 8 and all("def " in one or "raise" in one or "File" in one or "^" in one for one in own)


def test_the_words_that_link_a_cause_within_a_group_are_no_part_of_its_message():
    chain = tracebacks.last_chain(lines(CAUSES_IN_GROUP))
    assert chain.raised[0].message == "'tokens'"


def test_an_earlier_handled_error_is_a_separate_chain():
    text = [*lines(DURING), "step 1", "step 2", *lines(PLAIN)]
    assert [one.words for one in tracebacks.last_chain(text).raised] == [LABEL]


@pytest.mark.parametrize(
    "after",
    [
        ["Exception ignored in: <function Pool.__del__ at 0x7f>", *lines(DURING)],
        ["Exception in thread Thread-3 (prefetch):", *lines(DURING)],
        ["Error in atexit._run_exitfuncs:", *lines(DURING)],
        ["[W1122 12:00:00.1 socket.cpp:460] Broken pipe"],
        ["terminate called after throwing an instance of 'std::runtime_error'", "  what():  boom"],
        [f"line {number}" for number in range(20_000)],
    ],
)
def test_later_output_does_not_hide_the_error(after):
    chain = tracebacks.last_chain([*lines(PLAIN), *after])
    assert [one.words for one in chain.raised] == [LABEL]
    assert chain.lines[0] == "Traceback (most recent call last):"


def test_a_torchrun_report_is_never_shown_instead_of_an_error():
    report = lines(f"""
        Traceback (most recent call last):
          File "{LIBRARY}/distributed/launcher/api.py", line 386, in launch_agent
            raise ChildFailedError(
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
        ============================================================
        train.py FAILED
        """)
    assert (
        tracebacks.last_chain([*lines(PLAIN), "E1122 12:00:00 failed (exitcode: 1)", *report]).raised[0].words == LABEL
    )
    assert tracebacks.is_report(tracebacks.last_chain(report))


def test_lines_of_another_rank_do_not_become_part_of_a_message():
    text = [*(f"[rank2]: {line}" for line in lines(PLAIN)), "[rank3]: more", "[rank2]: not the message either"]
    assert tracebacks.last_chain(text).lines[-1] == LABEL


def test_empty_lines_without_a_prefix_stay_part_of_a_message():
    text = [*lines(PLAIN)[:-1], "ValueError: ", "", "Could not build the model:", "  - encoder.depth: 12 != 24"]
    chain = tracebacks.last_chain([f"[rank1]: {line}" if line else "" for line in text])
    assert chain.raised[0].words == "ValueError: Could not build the model: - encoder.depth: 12 != 24"
    assert chain.lines[-1] == "  - encoder.depth: 12 != 24"


def test_a_multi_line_message_is_kept():
    assert tracebacks.last_chain(lines(DURING)).raised[-1].message.split("\n") == [
        "unknown optimizer adamx",
        "known are: sgd, adam",
    ]


def test_a_long_chain_keeps_its_first_cause_and_its_last_words():
    deep = ["Traceback (most recent call last):"]
    deep += [f'  File "/code/x.py", line {number}, in f' for number in range(2000)] + [LABEL]
    chain = tracebacks.last_chain(deep)
    assert len(chain.lines) == tracebacks.MOST_LINES + 1
    assert (chain.lines[0], chain.lines[-1]) == (deep[0], LABEL)


def test_library_frames_are_distinguished_from_user_frames():
    shown = traceback_view.shown(lines(WORKER))
    assert [one.look for one in shown] == ["words", "own", "library", "words", "library", "own", "words"]
    assert shown[1].lines[0] == '  File "/code/train.py", line 9, in <module>'
    assert shown[5].lines[-1] == '    raise ValueError("label 17 is outside 0..9")'


@pytest.mark.parametrize(
    "line", ["Traceback (most recent call last):", "[rank1]: " * 2000, "  | " * 20_000, "(" * 60_000]
)
def test_hostile_lines_are_parsed_in_linear_time(line):
    began = time.process_time()
    tracebacks.last_chain([line] * 400)
    assert time.process_time() - began < 10, "a quadratic pattern needs minutes"


def quoting(message: str, code: str = "main()") -> list[str]:
    """A traceback whose message is `message` with the traceback of a KeyError in place of QUOTED."""
    quoted = 'Traceback (most recent call last):\n  File "/code/data.py", line 2, in f\n    {}["x"]\nKeyError: \'x\''
    head = f'Traceback (most recent call last):\n  File "/code/train.py", line 9, in <module>\n    {code}\n'
    return (head + message.replace("QUOTED", quoted)).split("\n")


@pytest.mark.parametrize("prefix", ["", "[rank2]: "])
@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("RuntimeError: worker failed:\nQUOTED", "main()"),
        ("RuntimeError: worker failed:\n\nQUOTED\n", "main()"),
        ("RuntimeError: worker 3 failed\nits traceback was\nQUOTED", "main()"),
        ("RuntimeError: worker failed\nQUOTED", 'raise RuntimeError(f"worker failed\\n{traceback.format_exc()}")'),
        ("RuntimeError: QUOTED", "raise RuntimeError(text)"),
        ("RuntimeError: \nQUOTED", "main()"),
    ],
)
def test_a_traceback_quoted_in_a_message_is_the_cause_and_the_outer_error_stays(message, code, prefix):
    text = quoting(message, code)
    chain = tracebacks.last_chain([prefix + line for line in text])
    assert [one.short_name for one in chain.raised] == ["KeyError", "RuntimeError"]
    assert chain.raised[0].words == "KeyError: 'x'"
    assert chain.raised[0].frames == (("/code/data.py", "f", '{}["x"]'),)
    assert chain.raised[1].frames[0][0] == "/code/train.py"
    assert (chain.lines[0], chain.lines[-1]) == ("Traceback (most recent call last):", "KeyError: 'x'")


def test_an_indented_traceback_quoted_in_a_message_is_the_cause_too():
    quoted = textwrap.indent("\n".join(quoting("KeyError: 'x'")), "    ")
    chain = tracebacks.last_chain(quoting(f"RuntimeError: worker failed:\n{quoted}"))
    assert [one.words for one in chain.raised] == ["KeyError: 'x'", "RuntimeError: worker failed:"]


def test_two_consecutive_tracebacks_are_two_chains():
    text = [*lines(PLAIN), *lines(DURING)]
    assert [one.short_name for one in tracebacks.last_chain(text).raised] == ["KeyError", "ValueError"]
    assert len(tracebacks.chains(text)) == 2


BOX = """
╭──────────── Traceback (most recent call last) ────────────╮
│ /code/train.py:27 in load                                  │
╰────────────────────────────────────────────────────────────╯
ValueError: checkpoint has 40 layers but the model that the
configuration describes has 48
  encoder: 12
"""


def test_a_message_below_a_box_is_whole_without_the_breaks_of_its_width():
    (raised,) = tracebacks.last_chain(BOX.strip().split("\n")).raised
    assert (
        raised.message
        == "checkpoint has 40 layers but the model that the configuration describes has 48\n  encoder: 12"
    )
    assert raised.words.endswith("that the configuration describes has 48")
