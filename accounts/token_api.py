"""/api/v1/tokens."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response

from common.http.rest import Paging

from . import tokens
from .models import Token
from .serializers import MadeToken, NewToken, TokenSerializer, user_of


class TokensView(generics.ListAPIView[Token]):
    """One's own tokens, and those of the service accounts of teams one administers."""

    serializer_class = TokenSerializer
    pagination_class = Paging
    queryset = Token.objects.none()

    def get_queryset(self) -> QuerySet[Token]:
        return tokens.visible(user_of(self.request))

    @extend_schema(operation_id="tokens_create", request=NewToken, responses={201: MadeToken})
    def post(self, request: Request) -> Response:
        sent = NewToken.of(request)
        days = sent.pop("expires_in_days")
        token, text = tokens.issue(by=user_of(request), days=days, **sent)
        answer: dict[str, Any] = {**TokenSerializer(token).data, "text": text}
        return Response(answer, status=201, headers={"Cache-Control": "no-store"})


class TokenView(generics.GenericAPIView[Token]):
    serializer_class = TokenSerializer
    queryset = Token.objects.none()

    def get_queryset(self) -> QuerySet[Token]:
        return tokens.visible(user_of(self.request))

    @extend_schema(operation_id="tokens_destroy", request=None, responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        tokens.revoke(token=self.get_object(), by=user_of(request))
        return Response(status=204)
