# The control plane's image. Training images are the users' own; the agent needs only Python 3.8 in them.
FROM python:3.11-slim
RUN useradd --uid 10001 --create-home muster
WORKDIR /muster
COPY requirements/server.lock requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/server.lock
COPY --chown=muster . .
ENV PYTHONPATH=/muster:/muster/client MUSTER_STATIC_ROOT=/muster/staticfiles
RUN MUSTER_SECRET_KEY=build python manage.py collectstatic --noinput -v0 && python -m agent.build && mkdir /data && chown muster /data
USER muster
EXPOSE 8000
CMD ["uvicorn", "controlplane.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--http", "controlplane.http_protocol:BoundedHttp", "--no-access-log", "--no-server-header", "--no-proxy-headers"]
