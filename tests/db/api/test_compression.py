"""Answers of the API to programs are compressed; those to browsers, which another site could have ask, are not."""

import gzip
import json

from accounts.models import Token


def test_a_program_is_answered_compressed_and_revalidates(client, people, lab):
    for _ in range(3):
        lab.submit()
    asked = {"Authorization": f"Bearer {Token.issue(people.owner, 'x')[1]}", "Accept-Encoding": "gzip"}
    answer = client.get("/api/v1/jobs", headers=asked)
    plain = client.get("/api/v1/jobs", headers={**asked, "Accept-Encoding": ""})
    assert answer.headers["Content-Encoding"] == "gzip" and len(answer.content) < len(plain.content) / 2
    assert json.loads(gzip.decompress(answer.content)) == plain.json()
    assert "Accept-Encoding" in answer.headers["Vary"] and "Content-Encoding" not in plain.headers
    assert answer.headers["ETag"] == f"W/{plain.headers['ETag']}"
    again = client.get("/api/v1/jobs", headers={**asked, "If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304


def test_a_browser_is_not(as_, people, lab):
    lab.submit()
    answer = as_(people.owner).get("/api/v1/jobs", headers={"Accept-Encoding": "gzip"})
    assert answer.status_code == 200 and "Content-Encoding" not in answer.headers
