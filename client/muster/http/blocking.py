"""Run the asynchronous core from synchronous code: no event loop, no thread.

Over a `BlockingPort`, a coroutine of the core runs to its end at its first step. So this works wherever ordinary code
does: in a thread, after a fork, in a notebook whose own loop is running.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Callable, TypeVar, overload

if TYPE_CHECKING:
    # For type checkers only: the package itself needs neither, and Python 3.9 has no ParamSpec.
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")


@overload
def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]: ...
@overload
def blocking(method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]: ...


def blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of the core as one of a client whose `_core` blocks, with the same arguments and docstring."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        def perform(client: Any, *args: Any, **options: Any) -> Any:
            return run(method(client._core, *args, **options))

        return perform

    @functools.wraps(method)
    def begin(client: Any, *args: Any, **options: Any) -> Any:
        return stepped(method(client._core, *args, **options))

    described = inspect.signature(method)
    kind = str(described.return_annotation).removeprefix("Async")
    begin.__signature__ = described.replace(return_annotation=kind)  # type: ignore[attr-defined]
    return begin


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends. One that does is ended by a RuntimeError where it waits."""
    hooks = sys.get_asyncgen_hooks()
    try:
        # A running loop of this thread must not adopt the generators of the core: it would close them at its own end.
        sys.set_asyncgen_hooks(None, None)
        waited = coroutine.send(None)
        coroutine.throw(RuntimeError(f"a synchronous client cannot wait for {waited!r}"))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        sys.set_asyncgen_hooks(*hooks)
    raise RuntimeError("a coroutine that waited could not be ended")


def stepped(items: AsyncIterator[T]) -> Iterator[T]:
    """Yield the items of a generator that never suspends. It is closed with this one, and ends its connection."""
    try:
        while True:
            try:
                item = run(_following(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())  # type: ignore[attr-defined]


async def _following(items: AsyncIterator[T]) -> T:
    return await items.__anext__()  # the hooks are read by the call, so it must be made within `run`
