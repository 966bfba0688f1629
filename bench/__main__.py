"""`bin/bench [name ...]`: run the named benchmarks, or all. Exit 0 when they ran; what they found is in their last line.

It is kept as artifacts/bench/NAME.json, too, where `scaling` reads it.
"""

import importlib
import sys

from .figures import Result
from .scaling import MEASURED

NAMES = (
    "overhead", "idle", "quiet", "list", "pages", "nodes", "overview", "keepalive", "submit", "ingest", "sync", "frameworks", "launch", "namespaces", "admission", "forecast", "watch", "delete",
    "verdicts", "scaling",
)  # fmt: skip


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in names or NAMES:
        result: Result = importlib.import_module(f"bench.{name}").run()
        print(result.to_json(), flush=True)
        MEASURED.mkdir(parents=True, exist_ok=True)
        (MEASURED / f"{name}.json").write_text(result.to_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
