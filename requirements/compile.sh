#!/usr/bin/env bash
# Rewrite the lock files from pyproject.toml: dev.lock holds everything, demo.lock what `bin/demo` installs, server.lock
# what an image of the control plane needs. The smaller ones are resolved under the largest, so they never disagree.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "uv is needed to resolve: pip install uv" >&2; exit 1; }
options=(--quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate)
uv pip compile "${options[@]}" "$@" --extra train --extra dev pyproject.toml -o requirements/dev.lock
uv pip compile "${options[@]}" --extra train -c requirements/dev.lock pyproject.toml -o requirements/demo.lock
uv pip compile "${options[@]}" -c requirements/dev.lock pyproject.toml -o requirements/server.lock
# What `bin/advisories` asks with lives in an environment of its own.
echo pip-audit | uv pip compile "${options[@]}" - -o requirements/advisories.lock
# What tests of docker-compose.yml run it with (rig/containers.py), in an environment of its own too.
echo podman-compose | uv pip compile "${options[@]}" - -o requirements/containers.lock
