"""`Authorization: Bearer mst_...` for scripts. Anything but a valid token is refused before any data is read."""

from datetime import timedelta

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from common import faultpoints

from .models import Token, User

USE_IS_NOTED_EVERY = timedelta(minutes=1)  # one write a minute per token, not one per request


def has_valid_token(authorization: str) -> bool:
    """Return whether an Authorization header carries an active user's valid token; its use is not recorded here."""
    scheme, _, text = authorization.strip().partition(" ")
    return scheme.lower() == "bearer" and valid_token(text.strip()) is not None


def valid_token(text: str) -> Token | None:
    found = Token.objects.valid().select_related("user").filter(digest__in=Token.digests_of(text))
    token = next(iter(found), None)  # digests are unique: `first` would add an ORDER BY to each request for nothing
    return token if token is not None and token.user.is_active else None


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, Token] | None:
        words = get_authorization_header(request).split()
        if not words or words[0].lower() != b"bearer":
            return None
        if len(words) != 2:
            raise AuthenticationFailed("the Authorization header must be: Bearer TOKEN")
        token = self._find(words[1].decode("ascii", "replace"))
        self._note_use(token)
        token.user.grant = token.grant  # from here on this user may do what the token leaves of the role
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"

    def _find(self, text: str) -> Token:
        token = valid_token(text)
        if token is None:
            raise AuthenticationFailed("this token is unknown, expired or revoked; run: muster login")
        return token

    def _note_use(self, token: Token) -> None:
        now = timezone.now()
        if token.last_used_at is None or now - token.last_used_at > USE_IS_NOTED_EVERY:
            with faultpoints.around("accounts.use"):
                Token.objects.filter(pk=token.pk).update(last_used_at=now)


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # registers itself by being defined
    """Name this scheme in the OpenAPI schema."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}
