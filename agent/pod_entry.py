"""The first program in a pod: lay out the agent's folder (docs/wire.md, section 1) and wait for the agent.

The kernel ends a container with its first process, and with it whatever was read and not sent. So this one only waits:
if the agent is killed (typically out of memory), it starts another that sends what the first one left. A replica runs
once: where the cluster starts its container again (a StatefulSet's pods cannot end), it only waits for its pod's end.

It is next to agent.pyz in a ConfigMap and runs in the image's own Python: standard library, Python 3.8 and later. What
all replicas of a role share is in role.json, what differs is in the environment.
"""

import json
import os
import signal
import ssl
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = os.environ.get("MUSTER_TOLD", "/muster/told")  # the Secret
STATE = os.environ.get("MUSTER_STATE", "/muster/state")  # an empty folder
APP = os.environ.get("MUSTER_APP", "/app")  # where images often have a job's code
MESSAGE = os.environ.get("MUSTER_MESSAGE", "/dev/termination-log")  # the kubelet shows it as the reason
CAN_NOT_START = 78  # EX_CONFIG of sysexits.h


def main() -> int:
    try:
        if not is_first():
            signal.sigwait([signal.SIGTERM])
            return 0
        with open(os.path.join(CONFIG, "role.json"), encoding="utf-8") as file:
            config = json.load(file)
        config["index"] = int(os.environ["MUSTER_INDEX"])
        config["incarnation"] = int(os.environ.get("MUSTER_INCARNATION", "0"))
        config["last_words"] = MESSAGE
        check_shared(config.get("shared", ""))
        folder = lay_out(config)
        show_code_at(APP, os.path.join(folder, "code"))
        trust(os.path.join(CONFIG, "control-ca.pem"), folder)
    except (OSError, ValueError, KeyError) as error:
        return complain(f"the replica cannot start: {error}")
    return attend(folder)


def is_first() -> bool:
    """Whether no container of this pod began before this one. The folder lives as long as the pod."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # for `sigwait`, and until there is an agent
    try:
        os.close(os.open(os.path.join(STATE, "begun"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def attend(folder: str) -> int:
    """Run the agent to its end; return its exit code, by the shells' convention."""
    agent = start("--state", folder)
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(agent, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    status = await_end(agent)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    await_end(start("--drain", folder))
    return 128 + os.WTERMSIG(status)


def start(act: str, folder: str) -> int:
    words = [sys.executable, os.path.join(HERE, "agent.pyz"), act, folder]
    return os.posix_spawn(sys.executable, words, os.environ, setsigmask=[], setsigdef=[signal.SIGTERM])


def await_end(child: int) -> int:
    """Return the child's status. Reaps orphans too, which go to the first process."""
    while True:
        pid, status = os.wait()
        if pid == child:
            # From now on its pid may be another process's; and a drain ends by itself, within the pod's grace period.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            return status


def check_shared(path: str) -> None:
    """Check that the job's folder is writable: better now than in an hour, at the first checkpoint. Raises OSError."""
    if not path:
        return
    try:
        os.makedirs(os.path.join(path, "checkpoints"), exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"x")
    except OSError as error:
        raise OSError(f"the job folder {path} cannot be written by user {os.getuid()}: {error.strerror}") from error


def lay_out(config: "dict[str, object]") -> str:
    folder = os.path.join(STATE, f"{config['role']}-{config['index']}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.makedirs(os.environ.get("HOME") or STATE, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, "replica.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    own = os.path.join(CONFIG, "token")
    # Pods of one template get the tokens of all.
    with open(own if os.path.exists(own) else f"{own}-{config['index']}", encoding="ascii") as secret:
        token = secret.read()
    descriptor = os.open(os.path.join(folder, "token"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(token)
    return folder


def show_code_at(path: str, code: str) -> None:
    """Let the job's code be found there too, where the image has nothing of that name and its root can be written."""
    try:
        os.symlink(code, path)
    except OSError:
        pass  # it is where it always is


def trust(authority: str, folder: str) -> None:
    """Trust the control plane's own CA in addition to the public ones, so that a job's own downloads still work."""
    if not os.path.exists(authority):
        return
    pieces = [authority]
    known = ssl.get_default_verify_paths().cafile
    if known and os.path.exists(known):
        pieces.insert(0, known)
    bundle = os.path.join(folder, "authorities.pem")
    with open(bundle, "w", encoding="utf-8") as file:
        for piece in pieces:
            with open(piece, encoding="utf-8") as source:
                file.write(source.read() + "\n")
    os.environ["SSL_CERT_FILE"] = bundle


def complain(text: str) -> int:
    print(text, file=sys.stderr)
    try:
        with open(MESSAGE, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        pass  # already on stderr
    return CAN_NOT_START


if __name__ == "__main__":
    sys.exit(main())
