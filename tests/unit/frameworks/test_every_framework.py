"""What holds for every framework, whichever it is: a new one is found here by its module alone."""

from pathlib import Path

import pytest

from agent import frameworks as agent_frameworks
from agent.frameworks.base import Framework
from common.errors import InvalidInput, InvalidSpec
from jobs import frameworks
from jobs.core.fields import FIELDS, Type
from jobs.core.plan import FirstRank, Index
from jobs.core.spec import parse

EVERY = pytest.mark.parametrize("framework", frameworks.REGISTRY.values(), ids=frameworks.REGISTRY)


def resolved(framework, **sent):
    sent = {"command": "python train.py", "framework": framework.NAME, "nodes": 3, **sent}
    return frameworks.check(parse(sent, options=frameworks.OPTIONS), frozenset(sent))


@EVERY
def test_ranks_are_unique_over_all_roles_and_without_a_gap(framework):
    roles = framework.roles(resolved(framework))
    ranks = [role.first_rank + n for role in roles for n in range(role.replicas * role.processes)]
    assert ranks == list(range(len(ranks)))
    assert all(role.processes == 1 for role in roles if role.is_rank)


@EVERY
def test_the_same_description_gives_the_same_roles(framework):
    assert framework.roles(resolved(framework)) == framework.roles(resolved(framework))


@EVERY
def test_some_role_ends_the_job_and_an_anchor_exists(framework):
    roles = framework.roles(resolved(framework))
    assert any(role.completes for role in roles)
    assert all(role.anchor is None or (role.least and 0 <= role.anchor < role.replicas) for role in roles)


@EVERY
def test_its_own_fields_are_explained_and_hide_no_field_of_every_job(framework):
    assert not {field.name for field in framework.FIELDS} & set(FIELDS)
    for field in framework.FIELDS:
        assert field.label and len(field.help) > 10 and field.remedy
        assert field.type is not Type.MAPPING and (field.least is None) == (field.type is not Type.WHOLE)


@EVERY
def test_what_a_stop_asks_is_a_sentence(framework):
    assert "SIGTERM" in framework.STOPPING and framework.STOPPING.endswith(".")


@EVERY
def test_what_it_sets_itself_cannot_be_set_by_users(framework):
    roles = framework.roles(resolved(framework))
    per_replica = {name for role in roles for name, value in role.env.items() if isinstance(value, Index | FirstRank)}
    assert per_replica <= framework.RESERVED_ENV
    assert not framework.KEY_ENV or framework.KEY_ENV in framework.RESERVED_ENV


def test_a_field_of_two_frameworks_is_the_same_in_both():
    fields = {field for framework in frameworks.REGISTRY.values() for field in framework.FIELDS}
    assert len(fields) == len({field.name for field in fields}), "OpenAPI describes each name once"


def test_each_half_inside_a_replica_is_registered():
    """The agent gives an unknown framework the neutral half, so that a forgotten line would go unnoticed."""
    halves = {path.stem for path in Path(agent_frameworks.__file__).parent.glob("*.py")} & set(frameworks.REGISTRY)
    assert halves == {name for name in frameworks.REGISTRY if type(agent_frameworks.get(name)) is not Framework}


@pytest.mark.parametrize("name", ["mpi", "", [], {}, 1])
def test_what_is_no_framework_is_refused_whatever_its_type(name):
    with pytest.raises(InvalidSpec, match="is unknown; choose one of"):
        frameworks.get(name)
    with pytest.raises(InvalidInput, match="is unknown; choose one of"):
        frameworks.default("framework", name)
