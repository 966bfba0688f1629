"""The top layer of the server: settings, URL maps, ASGI and Celery applications, the stream of hints."""
