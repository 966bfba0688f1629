"""The words of muster-server, and what it says of settings with which no process can start."""

import pytest
from click.testing import CliRunner

from controlplane.operations import server
from jobs import clusters


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(server.cli, words)
    return done.exit_code, done.output


def test_an_unknown_word_names_the_known_ones():
    code, said = run("worker")
    assert code == 2 and "No such command 'worker'" in said
    code, said = run("--help")
    assert code == 0 and all(
        word in said for word in ("web", "tasks", "beat", "watcher", "migrate", "check", "secrets")
    )


@pytest.fixture
def problem_of(settings):
    """What is wrong with an entry of MUSTER_CLUSTERS."""

    def ask(entry: dict) -> str:
        settings.CLUSTERS = {"lab": {"OPTIONS": {}, **entry}}
        return clusters.configuration_problem()

    return ask


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"BACKEND": "jobs.clusters.nothing.Here"}, "BACKEND of lab is jobs.clusters.nothing.Here, which cannot be used: No module named"),
        ({"BACKEND": "json.dumps"}, "BACKEND of lab is json.dumps, which cannot be used: it is no class of a cluster"),
        ({"BACKEND": "Kubernetes"}, "BACKEND of lab is Kubernetes, which cannot be used: "),
        (
            {"BACKEND": "jobs.clusters.kubernetes.KubernetesCluster", "OPTIONS": {"NAMESPACES": "a"}},
            "OPTIONS of lab cannot be used: OPTIONS.NAMESPACES",
        ),
        ({"BACKEND": "jobs.clusters.local.LocalCluster"}, "OPTIONS of lab cannot be used: "),
    ],
)  # fmt: skip
def test_a_cluster_that_can_never_be_used_is_refused_in_one_line(problem_of, entry, words):
    said = problem_of(entry)
    assert words in said and len(said.splitlines()) == 1


def test_a_cluster_that_can_be_used_is_none_that_is_refused(problem_of, tmp_path):
    assert problem_of({"BACKEND": "jobs.clusters.local.LocalCluster", "OPTIONS": {"ROOT": str(tmp_path)}}) == ""
