"""/account/sessions: list one's sign-ins, and end them."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from accounts.signin import session_list

from .parts import UserRequest, answer, knows_password, text


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: UserRequest) -> HttpResponse:
    this = request.session.session_key
    if request.method == "POST":
        if knows_password(request):
            _end(request, text(request, "end"), this)
        return redirect("account-sessions")
    context = {"rows": session_list.of(request.user, this=this)}
    return answer(request, template="accounts/sessions.html", context=context)


def _end(request: UserRequest, ref: str, this: str | None) -> None:
    ended = session_list.end_others(request.user, this=this) if ref == "others" else session_list.end(request.user, ref)
    words = "That session was ended." if ref != "others" else "You were signed out everywhere else."
    messages.success(request, words if ended else "It had already ended.")
