"""`Authorization: Bearer mst_...` for scripts. Anything but a valid token is refused before any data is read."""

from datetime import timedelta

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from .models import Token, User

USE_IS_NOTED_EVERY = timedelta(minutes=1)  # one write a minute per token, not one per request


def user_of_token(authorization: str) -> User | None:
    """Return the active user whose valid token an Authorization header carries; its use is not recorded here."""
    scheme, _, text = authorization.strip().partition(" ")
    token = valid_token(text.strip()) if scheme.lower() == "bearer" else None
    return None if token is None else token.user


def valid_token(text: str) -> Token | None:
    """Return the valid token of an active user; its user may do what the token leaves of the role."""
    found = Token.objects.valid().select_related("user").filter(digest__in=Token.digests_of(text))
    token = next(iter(found), None)  # digests are unique: `first` would add an ORDER BY to each request for nothing
    if token is None or not token.user.is_active:
        return None
    token.user.grant = token.grant
    return token


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, Token] | None:
        words = get_authorization_header(request).split()
        if not words or words[0].lower() != b"bearer":
            return None
        if len(words) != 2:
            raise AuthenticationFailed("the Authorization header must be: Bearer TOKEN")
        token = self._find(words[1].decode("ascii", "replace"))
        self._note_use(token)
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
            Token.objects.filter(pk=token.pk).update(last_used_at=now)


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # registers itself by being defined
    """Name this scheme in the OpenAPI schema."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}
