"""Session storage (SESSION_ENGINE): Django's own rows, with a reference to the user."""

from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import db

from .models import SignIn


class SessionStore(db.SessionStore):
    """Keep Django's class name: it is part of what signs the data, so earlier sessions stay readable."""

    @classmethod
    def get_model_class(cls) -> type[SignIn]:
        return SignIn

    def create_model_instance(self, data: dict[str, Any]) -> SignIn:
        row = super().create_model_instance(data)
        assert isinstance(row, SignIn)
        row.user_id = int(data[SESSION_KEY]) if SESSION_KEY in data else None
        return row
