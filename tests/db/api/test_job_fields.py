"""The fields of a job, in every interface: each is generated from or checked against the table of fields."""

import pytest
from drf_spectacular.generators import SchemaGenerator

from accounts.models import Token
from jobs.core.fields import FIELDS, Type
from jobs.frameworks import OPTIONS
from jobs.web.forms import NUMBERS
from tests.db.api.test_api import SENT, Api

pytestmark = pytest.mark.django_db


@pytest.fixture
def as_(client, people):
    return lambda who: Api(client, Token.issue(getattr(people, who), "test")[1])


def test_the_server_publishes_its_fields(as_):
    results = as_("viewer").get("/job-fields").json()["results"]
    for framework, fields in [(None, FIELDS), *OPTIONS.items()]:
        assert [one["name"] for one in results if one["framework"] == framework] == list(fields)
    listed = {one["name"]: one for one in results}
    assert (listed["nodes"]["minimum"], listed["nodes"]["maximum"], listed["nodes"]["default"]) == (1, 4096, 1)
    assert listed["secrets"]["type"] == "object" and "never shown" in listed["secrets"]["help"]


def test_the_schema_has_the_bounds_of_each_field():
    schema = SchemaGenerator().get_schema(request=None, public=True)["components"]["schemas"]["Submit"]["properties"]
    assert set(FIELDS) < set(schema)
    for field in NUMBERS:
        number = schema[field.name]["anyOf"][0]
        number = number["items"]["anyOf"][0] if field.is_numbers else number
        assert (number["minimum"], number["maximum"]) == (field.least, field.most)
        assert schema[field.name]["description"] == field.help


@pytest.mark.parametrize("field", [one for one in FIELDS.values() if one.type is Type.WHOLE], ids=lambda one: one.name)
def test_a_number_out_of_bounds_is_refused_with_its_field_name(as_, queue, field):
    answer = as_("owner").post("/plans", {**SENT, field.name: field.most + 1})
    assert answer.status_code == 422
    said = {one["field"]: one["message"] for one in answer.json()["errors"]}
    assert field.remedy in said[field.name]
