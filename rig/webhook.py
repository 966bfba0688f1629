"""An admission webhook that denies requests, over TLS with a certificate of the rig's CA."""

import base64
import http.server
import json
import ssl
import threading
from typing import Any

from .plane import ControlPlane


class Webhook:
    """Deny the pods of one namespace, with this message. Use as a context manager."""

    def __init__(self, plane: ControlPlane, namespace: str, *, words: str):
        self._plane, self._namespace, self._words = plane, namespace, words
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"words": words}))
        pair = plane.authority.server()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def __enter__(self) -> "Webhook":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        with self._plane.client() as client:
            answer = client.post(self._path(), json=self._configuration())
            assert answer.status_code == 201, answer.text
        return self

    def __exit__(self, *error: object) -> None:
        with self._plane.client() as client:
            client.delete(f"{self._path()}/{self._namespace}")
        self._server.shutdown()
        self._server.server_close()

    def _path(self) -> str:
        return "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

    def _configuration(self) -> dict[str, Any]:
        authority = base64.b64encode(self._plane.authority.pair.certificate.read_bytes()).decode()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        hook = {
            "name": "no.rig.test", "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}},
            "clientConfig": {"url": f"https://127.0.0.1:{self._server.server_address[1]}/", "caBundle": authority},
        }  # fmt: skip
        return {"metadata": {"name": self._namespace}, "webhooks": [hook]}


class _Handler(http.server.BaseHTTPRequestHandler):
    words = ""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        response = {"uid": asked["request"]["uid"], "allowed": False, "status": {"message": self.words}}
        body = json.dumps(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass
