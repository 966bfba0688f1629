"""The types that users of both clients see. Checked by `bin/check mypy`, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from muster import AsyncClient, Client
from muster.jobs.models import Job, LogLine, LogPage


def ordinary() -> None:
    with Client("http://lab", "token", sleep=lambda seconds: None) as client:
        assert_type(client, Client)
        assert_type(client.submit(["true"], queue="research", nodes=2), Job)
        assert_type(client.cancel("train", now=True), Job)
        assert_type(client.file(1, "train.py"), bytes)
        assert_type(client.revoke_token(1), None)
        assert_type(client.jobs(limit=3), Iterator[Job])
        assert_type(client.follow(1), Iterator[LogLine | Job])
        assert_type(client.log_pages(1, follow=True), Iterator[LogPage])
        client.cancel("train", later=True)  # type: ignore[call-arg]
        client.job(b"train")  # type: ignore[arg-type]


async def awaited() -> None:
    async with AsyncClient("http://lab", "token") as client:
        assert_type(client, AsyncClient)
        assert_type(await client.submit(["true"], queue="research", nodes=2), Job)
        assert_type(await client.cancel("train", now=True), Job)
        assert_type(await client.file(1, "train.py"), bytes)
        await client.revoke_token(1)
        assert_type(client.jobs(limit=3), AsyncIterator[Job])
        assert_type(client.follow(1), AsyncIterator[LogLine | Job])
        assert_type(client.log_pages(1, follow=True), AsyncIterator[LogPage])
        await client.cancel("train", later=True)  # type: ignore[call-arg]
        await client.job(b"train")  # type: ignore[arg-type]
