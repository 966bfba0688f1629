"""`api("owner", scope="manage").put(...)` sends a request with a token; `boss` is the administrator of the team."""

import pytest

from accounts.models import Membership, Role, Team, Token, User
from tests.conftest import make_user


class Api:
    """Sends requests as a script would, through all middleware."""

    def __init__(self, client, text: str = ""):
        self.client = client
        self.headers = {"Authorization": f"Bearer {text}"} if text else {}

    def get(self, path: str, **query):
        return self.client.get(f"/api/v1{path}", query, headers=self.headers)

    def send(self, method: str, path: str, body=None, **headers):
        send = getattr(self.client, method)
        named = {**self.headers, **headers}
        return send(f"/api/v1{path}", body or {}, content_type="application/json", headers=named)

    def post(self, path: str, body=None, **headers):
        return self.send("post", path, body, **headers)

    def put(self, path: str, body=None):
        return self.send("put", path, body)

    def patch(self, path: str, body=None):
        return self.send("patch", path, body)

    def delete(self, path: str):
        return self.send("delete", path)


@pytest.fixture
def boss(team, people) -> User:
    user = make_user("boss")
    Membership.objects.create(user=user, team=team, role=Role.ADMIN)
    return user


@pytest.fixture
def api(client, people, boss):
    """`api("viewer")` sends a token of that user; `api()` sends none."""

    def of(name: str = "", *, scope: str = "manage", team: Team | None = None) -> Api:
        if not name:
            return Api(client)
        user = User.objects.get(username={"admin": "root"}.get(name, name))
        return Api(client, Token.issue(user, "test", scope=scope, team=team)[1])

    return of
