import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidSpec
from jobs import frameworks
from jobs.core import shell_words
from jobs.core.plan import MAX_SPREAD, Plan, distribute, nearest
from jobs.core.spec import JobSpec, parse
from jobs.core.volumes import mounts


def resolved(**sent):
    return frameworks.check(parse(sent), frozenset(sent))


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"command": "x", "nodes": 0}, "nodes", "from 1 to 4096, not 0"),
        ({"command": "x", "nodes": -3}, "nodes", "not -3"),
        ({"command": "x", "nodes": 10**9}, "nodes", "from 1 to 4096"),
        ({"command": "x", "nodes": 1.5}, "nodes", "whole number"),
        ({"command": "x", "nodes": True}, "nodes", "whole number"),
        ({"command": "x", "nproc_per_node": "two"}, "nproc_per_node", "whole number"),
        ({"command": ""}, "command", "is missing"),
        ({"command": "echo 'half"}, "command", "quotes"),
        ({"command": ["a\0b"]}, "command", "NUL"),
        ({"command": ["x" * 70_000]}, "command", "longer than"),
        ({"command": "x", "env": {"1A": "b"}}, "env.1A", "variable name"),
        ({"command": "x", "env": {"A": 1}}, "env.A", "quote numbers"),
        ({"command": "x", "env": {"MUSTER_JOB": "1"}}, "env.MUSTER_JOB", "set by Muster"),
        ({"command": "x", "env": ["A"]}, "env", "map names to text"),
        ({"command": "x", "name": "Über"}, "name", "a-z, 0-9"),
        ({"command": "x", "name": "name\n"}, "name", "a-z, 0-9"),
        ({"command": "x", "env": {"A\n": "b"}}, "env.A\n", "variable name"),
        ({"command": "x", "secrets": {"A\n": "b"}}, "secrets.A\n", "variable name"),
        ({"command": "x", "gpus": -1}, "gpus", "from 0 to"),
        ({"command": "x", "gpus": 10**30}, "gpus", "to 1048576"),
        ({"command": "x", "replicas": 2}, "replicas", "not a field"),
        ({"command": "x", "deadline_seconds": 0}, "deadline_seconds", "no limit"),
        ({"command": "x", "retry_on": [75]}, "retry_on", "needs max_retries of at least 1"),
        ({"command": "x", "max_retries": 1, "retry_on": 0}, "retry_on", "from 1 to 255, not 0"),
        ({"command": "x", "max_retries": 1, "never_retry_on": "2, x"}, "never_retry_on", "whole number, not 'x'"),
        ({"command": "x", "max_retries": 1, "retry_on": {"75": 1}}, "retry_on", "a list of whole numbers"),
        ({"command": "x", "max_retries": 1, "retry_on": [1] * 256}, "retry_on", "at most 255"),
        (
            {"command": "x", "max_retries": 1, "retry_on": [75, 2], "never_retry_on": [2]},
            "never_retry_on",
            "are in retry_on, too",
        ),
    ],
)
def test_an_invalid_field_is_named_with_its_value_and_a_remedy(sent, field, words):
    with pytest.raises(InvalidSpec) as caught:
        parse(sent, gpus_per_node=8)
    problem = next(one for one in caught.value.problems if one.field == field)
    assert words in problem.message


@pytest.mark.parametrize(
    "command", [["a b" + "x" * 70_000], "a b" + "x" * 70_000, '"' + "a b" * 30_000 + '"', ["é b" * 20_000]]
)
def test_a_command_that_is_too_long_is_refused_before_it_is_split(command, monkeypatch):
    """One quoted word of 1 MB took 13 s to split."""
    split = []
    monkeypatch.setattr(shell_words.shlex, "split", lambda *text: split.append(text))
    with pytest.raises(InvalidSpec, match="longer than 65536 bytes"):
        parse({"command": command})
    assert shell_words.quoted_whole(command) == "" and not split


def test_all_problems_are_reported_at_once():
    with pytest.raises(InvalidSpec) as caught:
        parse({"command": "", "nodes": 0, "env": {"1": "x"}})
    assert {one.field for one in caught.value.problems} == {"command", "nodes", "env.1"}


def test_queue_defaults_apply_unless_the_job_sets_the_field():
    spec = parse({"command": "x", "nodes": 2, "env": None}, defaults={"nodes": 4, "max_retries": 3})
    assert (spec.nodes, spec.max_retries) == (2, 3)


def test_a_spec_survives_a_round_trip_through_json():
    spec = parse({"command": "torchrun x.py", "env": {"A": "b"}, "nodes": 3})
    assert JobSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --lr 1", ("torchrun", "train.py", "--lr", "1")),
        ("python3 -u train.py", ("torchrun", "train.py")),
        ("python3.11 -m pkg.train", ("python3.11", "-m", "torch.distributed.run", "-m", "pkg.train")),
        ("torchrun train.py", ("torchrun", "train.py")),
        ("python -m torch.distributed.run train.py", ("python", "-m", "torch.distributed.run", "train.py")),
        ("python -u -m torch.distributed.run train.py", ("python", "-u", "-m", "torch.distributed.run", "train.py")),
        (
            "python -m torch.distributed.launch --use_env train.py",
            ("python", "-m", "torch.distributed.launch", "--use_env", "train.py"),
        ),
        (
            "python -X utf8 -m torch.distributed.run x.py",
            ("python", "-X", "utf8", "-m", "torch.distributed.run", "x.py"),
        ),
        ("python -Xutf8 -mtorch.distributed.run x.py", ("python", "-Xutf8", "-mtorch.distributed.run", "x.py")),
        ("python -mpkg.train --lr 1", ("torchrun", "-m", "pkg.train", "--lr", "1")),
        ("python /opt/env/bin/torchrun train.py", ("python", "/opt/env/bin/torchrun", "train.py")),
        ("python /opt/env/bin/my-tool train.py", ("torchrun", "/opt/env/bin/my-tool", "train.py")),
        ("bash run.sh", ("bash", "run.sh")),
        ("accelerate env", ("accelerate", "env")),
    ],
)
def test_a_bare_python_command_is_wrapped(command, expected):
    assert resolved(command=command, nodes=2).command == expected


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        ("accelerate launch train.py --lr 1", "torchrun train.py --lr 1"),
        ("accelerate launch --num_processes 8 --mixed_precision bf16 src/train.py", "torchrun src/train.py"),
        ("accelerate-launch --multi_gpu -m pkg.train --lr 1", "torchrun -m pkg.train --lr 1"),
        ("/opt/env/bin/accelerate launch train.py", "torchrun train.py"),
        ("python -u /opt/env/bin/accelerate launch --num_processes 8 train.py", "torchrun train.py"),
        ("python3 /opt/env/bin/deepspeed --num_gpus 8 train.py", "torchrun train.py"),
        ("python -m accelerate.commands.launch train.py", "torchrun train.py"),
        ("python -W ignore -maccelerate.commands.launch train.py", "torchrun train.py"),
        ("python3 -u -m accelerate.commands.launch train.py", "torchrun train.py"),
        ("python -m accelerate.commands.accelerate_cli launch train.py", "torchrun train.py"),
        ("deepspeed --num_gpus 8 train.py --deepspeed ds.json", "torchrun train.py --deepspeed ds.json"),
        ("python -m deepspeed.launcher.runner train.py", "torchrun train.py"),
        ("lightning run model --devices 4 train.py", "torchrun train.py"),
        ("fabric run --devices=4 train.py", "torchrun train.py"),
        ("python -m lightning run model train.py", "torchrun train.py"),
        ("sh -c 'accelerate launch train.py'", "sh -c 'torchrun train.py'"),
        ("bash -lc 'accelerate launch train.py --lr 1'", "bash -lc 'torchrun train.py --lr 1'"),
        ("/bin/bash -o pipefail -ec 'exec deepspeed train.py'", "/bin/bash -o pipefail -ec 'exec torchrun train.py'"),
        ("bash -c 'A=1 time accelerate launch train.py'", "bash -c 'A=1 time torchrun train.py'"),
        ("env FOO=1 BAR=2 accelerate launch x.py", "env FOO=1 BAR=2 torchrun x.py"),
        ("env -i -u HOME FOO=1 accelerate launch x.py", "env -i -u HOME FOO=1 torchrun x.py"),
        ("uv run accelerate launch x.py", "uv run torchrun x.py"),
        ("uv run -- deepspeed x.py", "uv run -- torchrun x.py"),
        ("uv --quiet run --with torch --extra=gpu deepspeed x.py", "uv --quiet run --with torch --extra=gpu torchrun x.py"),
        ("uv run -m accelerate.commands.launch x.py", "uv run torchrun x.py"),
        ("uv run python -m deepspeed.launcher.runner x.py", "uv run torchrun x.py"),
        ("poetry run accelerate launch x.py", "poetry run torchrun x.py"),
        ("conda run -n train --no-capture-output deepspeed x.py", "conda run -n train --no-capture-output torchrun x.py"),
        (["time", "accelerate", "launch", "x.py"], "time torchrun x.py"),
        ("/usr/bin/time -v deepspeed x.py", "/usr/bin/time -v torchrun x.py"),
        ("nohup accelerate launch x.py", "nohup torchrun x.py"),
        ("exec accelerate launch x.py", "exec torchrun x.py"),
        ("nice -n 5 accelerate launch x.py", "nice -n 5 torchrun x.py"),
        ("nice -10 accelerate launch x.py", "nice -10 torchrun x.py"),
        ("numactl --cpunodebind=0 --membind 0 accelerate launch x.py", "numactl --cpunodebind=0 --membind 0 torchrun x.py"),
        ("taskset -c 0-7 deepspeed x.py", "taskset -c 0-7 torchrun x.py"),
        ("timeout -k 5 3600 deepspeed x.py", "timeout -k 5 3600 torchrun x.py"),
        ("nice env A=1 bash -c 'numactl -N 0 accelerate launch x.py'", "nice env A=1 bash -c 'numactl -N 0 torchrun x.py'"),
    ],
)  # fmt: skip
def test_a_launcher_is_refused_with_the_command_to_write_instead(command, instead):
    with pytest.raises(InvalidSpec) as caught:
        resolved(command=command, nodes=2, nproc_per_node=2)
    (problem,) = caught.value.problems
    text = command if isinstance(command, str) else " ".join(command)
    assert (problem.field, problem.value) == ("command", text.replace("'", ""))
    assert f"; write {instead}: " in problem.message


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", "cd src && accelerate launch train.py"],
        ["bash", "-c", "accelerate launch $SCRIPT"],
        ["bash", "-c", 'accelerate launch "$@"', "x", "train.py"],
        ["bash", "-c", "$(which accelerate) launch train.py"],
        ["bash", "-c", "echo accelerate launch train.py"],
        ["bash", "-c", "if deepspeed train.py; then true; fi"],
        ["bash", "-c", "accelerate launch 'train.py"],
        ["bash", "accelerate", "launch"],
        ["bash", "-c"],
        ["bash", "-x", "run.sh", "-c", "accelerate launch train.py"],
        ["env", "FOO=1", "torchrun", "train.py"],
        ["env", "-S", "accelerate launch train.py"],
        ["env"],
        ["env", "FOO=1"],
        ["uv", "run", "torchrun", "train.py"],
        ["uv", "run", "train.py", "accelerate", "launch"],
        ["uv", "pip", "install", "accelerate"],
        ["uv", "run", "--with", "accelerate", "launch"],
        ["uv", "run", "accelerate", "env"],
        ["poetry", "add", "deepspeed"],
        ["nice", "-n", "5", "python", "train.py"],
        ["timeout", "deepspeed"],
        ["numactl", "--hardware"],
        ["my-wrapper", "accelerate", "launch", "train.py"],
        ["nice"] * 20 + ["deepspeed", "train.py"],
    ],
)
def test_a_wrapper_that_starts_no_launcher_is_left_unchanged(command):
    assert list(resolved(command=command).command) == command


def test_hostile_shell_text_is_read_in_linear_time():
    began = time.process_time()
    for text in ("A=" * 30_000, "time " * 12_000, "A='' " * 12_000, "'" * 60_000, 'A=""' * 10_000):
        resolved(command=["bash", "-c", text])
    assert time.process_time() - began < 5


def test_counts_apply_to_the_older_name_of_torchrun_too():
    spec = resolved(command="python -m torch.distributed.launch --nproc_per_node=4 --use_env train.py --lr 1")
    assert spec.nproc_per_node == 4
    with pytest.raises(InvalidSpec, match="Muster sets the rendezvous"):
        resolved(command="python -m torch.distributed.launch --master_addr=10.0.0.1 train.py")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["python train.py --epochs 10"], ("python", "train.py", "--epochs", "10")),
        (["python  train.py\t--name 'two words'"], ("python", "train.py", "--name", "two words")),
        ("'python train.py'", ("python", "train.py")),
        (["train.py"], ("train.py",)),
        (["bash", "-c", "echo a b"], ("bash", "-c", "echo a b")),
        (["'my tool.sh'"], ("my tool.sh",)),  # a quoted program name with a space
        (["my tool.sh"], ("my tool.sh",)),
        (["./my tool.sh"], ("./my tool.sh",)),
    ],
)
def test_a_command_of_one_word_is_split_like_a_shell_does_unless_it_is_a_file(command, words):
    assert (
        parse({"command": command}, is_file=lambda path: path.endswith("my tool.sh") and "'" not in path).command
        == words
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["cd src && python train.py"], "holds & outside of quotes"),
        ("torchrun train.py | tee log", "holds | outside of quotes"),
        (["python train.py > out.txt 2>&1"], "holds > outside of quotes"),
        (["python train.py --lr $LR"], "holds $ outside of quotes"),
        (['python train.py --out "$MUSTER_SHARED/x"'], "holds $ outside of quotes"),
        (["python train.py --seed `date`"], "holds ` outside of quotes"),
        (["CUDA_LAUNCH_BLOCKING=1 python train.py"], "put CUDA_LAUNCH_BLOCKING into env"),
        (["python train.py data/*.tar"], "holds * outside of quotes"),
        (["python train.py ~/data"], "holds ~ outside of quotes"),
        (["~/bin/train --lr 1"], "holds ~ outside of quotes"),
        (["python train.py --lr={0.1,0.2}"], "holds { outside of quotes"),
        (["python train.py seed={1..3}"], "holds { outside of quotes"),
        (['python train.py {"a":1,"b":2}'], "holds { outside of quotes"),
        (["A+=1 python train.py"], "put A into env"),
        (["A[0]=1 python train.py"], "put A into env"),
        (["python train.py # the good one"], "holds # outside of quotes"),
        (["! python train.py"], "holds ! outside of quotes"),
        (["time python train.py"], "holds time outside of quotes"),
        (["python train.py --pid $$"], "holds $ outside of quotes"),
        (["python train.py $'a\\nb'"], "holds $ outside of quotes"),
        (["python train.py\r--lr 1"], "has several lines"),
        (["python prepare.py\npython train.py"], "has several lines"),
        ("python prepare.py\r\npython train.py", "has several lines"),
    ],
)
def test_shell_syntax_without_a_shell_is_refused_with_a_remedy(command, words):
    with pytest.raises(InvalidSpec) as caught:
        parse({"command": command})
    (problem,) = caught.value.problems
    assert problem.field == "command" and words in problem.message
    assert "sh -c '...'" in problem.message or "(--env)" in problem.message


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["sh -c 'cd src && python train.py > $OUT'"], ("sh", "-c", "cd src && python train.py > $OUT")),
        (["train.py --match 'a|b' --end x$ --say \"c;d\" e\\&f"], ("train.py", "--match", "a|b", "--end", "x$", "--say", "c;d", "e&f")),
        (["train.py", "--lr", "$LR", "a|b"], ("train.py", "--lr", "$LR", "a|b")),
        (["train.py betas=[0.9,0.99] s3://a?b=c a~b x#y c={} d={e} f! {a..} {..} {1...3}"], ("train.py", "betas=[0.9,0.99]", "s3://a?b=c", "a~b", "x#y", "c={}", "d={e}", "f!", "{a..}", "{..}", "{1...3}")),
        (["train.py '*.tar' \\*.zip '{a,b}' \"~/x\" '# no'"], ("train.py", "*.tar", "*.zip", "{a,b}", "~/x", "# no")),
        (['train.py "\\$LR \\`x\\` \\\\$ \\a a\\\nb" "cost$" \'$-\' "\\\\\\\\"'], ("train.py", "$LR `x` \\$ \\a ab", "cost$", "$-", "\\\\")),
        (["\n train.py \\\n  --lr 1 \\\r\n --text 'two\nlines'\n"], ("train.py", "--lr", "1", "--text", "two\nlines")),
    ],
)  # fmt: skip
def test_shell_characters_within_quotes_or_in_a_list_are_plain_words(command, words):
    assert parse({"command": command}).command == words


def test_one_word_whose_quotes_do_not_match_is_refused():
    with pytest.raises(InvalidSpec, match="check its quotes"):
        parse({"command": ["python train.py 'half"]})


def test_counts_given_as_flags_fill_unset_fields_of_the_spec():
    spec = resolved(command="torchrun --nnodes=4 --nproc_per_node 8 train.py")
    assert (spec.nodes, spec.nproc_per_node) == (4, 8)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("torchrun --nnodes=4 train.py", "--nnodes=4 contradicts nodes=2"),
        ("torchrun --nproc-per-node=8 train.py", "--nproc-per-node=8 contradicts nproc_per_node=1"),
        ("torchrun --master-addr=10.0.0.1 train.py", "--master-addr"),
        ("torchrun --standalone train.py", "means one replica"),
        ("torchrun --max-restarts=1", "names no script"),
        ("python -c pass", "write the code to a file"),
    ],
)
def test_flags_that_contradict_the_spec_are_refused_with_both_values(command, words):
    with pytest.raises(InvalidSpec, match=words):
        resolved(command=command, nodes=2, nproc_per_node=1)


def test_a_variable_that_torchrun_sets_is_refused():
    with pytest.raises(InvalidSpec, match="WORLD_SIZE"):
        resolved(command="torchrun x.py", env={"WORLD_SIZE": "3"})


def test_an_unknown_framework_names_the_known_ones():
    with pytest.raises(InvalidSpec, match="torchrun"):
        resolved(command="x", framework="horovod")


@pytest.mark.parametrize(
    ("gpus", "per_node", "nodes", "each"),
    [
        (0, 8, 1, 1),
        (4, 8, 1, 4),
        (8, 8, 1, 8),
        (16, 8, 2, 8),
        (32, 8, 4, 8),
        (12, 8, 2, 6),
        (10, 8, 2, 5),
        (20, 8, 4, 5),
    ],
)
def test_gpus_split_evenly_over_the_fewest_nodes(gpus, per_node, nodes, each):
    split = distribute(gpus, per_node)
    assert (split.nodes, split.per_node) == (nodes, each)


def test_a_total_that_does_not_split_evenly_names_the_nearest_that_do():
    with pytest.raises(InvalidSpec, match="12 and 14"):
        distribute(13, 8)


@given(st.integers(1, 400), st.integers(1, 16))
def test_a_split_never_allocates_more_than_asked_and_uses_the_fewest_nodes(gpus, per_node):
    try:
        split = distribute(gpus, per_node)
    except InvalidSpec:
        assert all(distribute(total, per_node).total == total for total in nearest(gpus, per_node))
        return
    assert split.total == gpus
    assert split.per_node <= per_node
    fewer = range(-(-gpus // per_node), split.nodes)
    assert all(gpus % nodes for nodes in fewer)
    assert split.nodes <= MAX_SPREAD * -(-gpus // per_node)


@given(
    st.dictionaries(
        st.text(max_size=12), st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text())), max_size=6
    )
)
def test_any_input_gives_a_spec_or_a_list_of_problems(sent):
    try:
        spec = parse(sent)
    except InvalidSpec as error:
        found = error.problems
    else:
        found = (spec.command,)
    assert found


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("data", "must be a list"),
        ([1], "must be a list"),
        (["Data"], "a-z, 0-9"),
        (["../x"], "a-z, 0-9"),
        (["data:relative"], "absolute path"),
        (["data:/a/../b"], "absolute path"),
        (["data:/usr/lib"], "belongs to the image"),
        (["data:/etc/"], "belongs to the image"),
        (["data://etc"], "second /"),
        (["data:///etc"], "second /"),
        (["data:/./etc"], "without ."),
        (["data:/data/./x"], "without ."),
        (["data:/data//x"], "second /"),
        (["data:/data//"], "second /"),
        (["data:/data\n"], "control characters"),
        (["data\n:/data"], "a-z, 0-9"),
        (["data\n"], "a-z, 0-9"),
        (["a:/data", "b:/data/"], "appears twice"),
        (["data:/"], "belongs to the image"),
        (["data", "data:/data"], "appears twice"),
        (["a:/data", "b:/data"], "appears twice"),
        ([f"v{number}" for number in range(21)], "at most 20"),
    ],
)
def test_an_invalid_volume_is_named_with_a_remedy(asked, words):
    with pytest.raises(InvalidSpec) as refused:
        parse({"command": "torchrun x.py", "volumes": asked})
    assert any(one.field == "volumes" and words in one.message for one in refused.value.problems)


def test_volumes_are_kept_as_requested():
    spec = parse({"command": "torchrun x.py", "volumes": ["data", "models:/models"]})
    assert JobSpec.from_json(spec.to_json()) == spec
    assert mounts(spec.volumes) == {"data": "", "models": "/models"}


@pytest.mark.parametrize("given", [[75, 137], "75, 137", "137 75", ["75", 137, 75], (75, 137)])
def test_exit_codes_are_a_list_or_one_text(given):
    spec = parse({"command": "x", "max_retries": 2, "retry_on": given})
    assert spec.retry_on == (75, 137)
    assert JobSpec.from_json(spec.to_json()) == spec


def test_a_spec_without_exit_codes_is_stored_as_the_release_before_reads_it():
    assert "retry_on" not in parse({"command": "x", "retry_on": "", "never_retry_on": None}).to_json()


def test_a_queues_default_exit_codes_do_not_refuse_a_job_without_retries():
    spec = parse({"command": "x", "max_retries": 0}, defaults={"max_retries": 3, "retry_on": [75]})
    assert (spec.max_retries, spec.retry_on) == (0, (75,))


@pytest.mark.parametrize(
    "sent", ["hush", {"1A": "hush"}, {"A": "hush\0"}, {"MUSTER_A": "hush"}, {"A": "hush" * 20_000}]
)
def test_no_problem_repeats_the_value_of_a_secret(sent):
    with pytest.raises(InvalidSpec) as refused:
        parse({"command": "x", "secrets": sent})
    assert refused.value.problems and "hush" not in repr(
        [(one.field, one.value, str(one)) for one in refused.value.problems]
    )


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"env": {f"A{number}": "x" for number in range(501)}}, "env"),
        ({"env": {"A": "x" * 65_537}}, "env.A"),
        ({"env": {"A": "1"}, "secrets": {"A": "2"}}, "secrets.A"),
    ],
)
def test_too_many_too_long_and_doubled_variables_are_refused_by_name(sent, field):
    with pytest.raises(InvalidSpec) as refused:
        parse({"command": "x", **sent})
    assert [one.field for one in refused.value.problems] == [field]


def test_a_plan_does_not_print_its_agents_tokens():
    assert "token-of-an-agent" not in repr(Plan("7-abc", 1, (), secrets={"worker-0": "token-of-an-agent"}))
