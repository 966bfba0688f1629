"""Reduce the last output of a process to one sentence that explains its end, and to a kind. Pure."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from signal import SIGABRT, SIGKILL

from jobs.core import exits, failure_kinds
from jobs.core.failure_kinds import Certainty, Classification, Kind

from . import error_kinds, monarch_errors, ray_errors, tracebacks
from .tracebacks import Chain

LAST_LINES = 20
PYTHONS_OWN = 1  # exit code of an interpreter that was ended by an exception
KEPT = 512  # cached readings of texts: those of a few attempts, at most some 20 MB
_SURE, _LIKELY = Certainty.SURE, Certainty.LIKELY
_WHERE = re.compile(r"^\[[^\]\n]{1,300}\.(?:cc|cpp|cu|h|hpp):\d+\] ")  # gloo and c10d begin with a source location
# torch's client of the store, and the warning of the same process above it.
_CONNECTS_TO = re.compile(r"connect to [^(]{0,40}\((\S{1,300}, \d{1,5})\)")
_UNRESOLVED = re.compile(
    r"addresses of \((\S{1,300}, \d{1,5})\) cannot be retrieved \(gai error: -[23] - ([^)]{1,80})\)"
)


@dataclass(frozen=True)
class LastOutput:
    """The end of what a process printed: its last chain of tracebacks, and the last lines of both streams."""

    traceback: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    stdout: tuple[str, ...] = ()
    # processes the kernel killed for lack of memory in its cgroup while it ran; None: not known
    oom_kills: int | None = None

    @property
    def last_lines(self) -> list[str]:
        return list(self.traceback or self.stderr or self.stdout)[-LAST_LINES:]


# While an attempt fails its verdict is judged with each agent's batch, mostly from texts that were read before.
@lru_cache(KEPT)
def chain_of(output: LastOutput | None) -> Chain | None:
    """Return the last chain of tracebacks, also from stderr without one.

    Agents search for the word Traceback: a script that does not compile, or a recursion that filled the kept text, has
    none.
    """
    return tracebacks.last_chain(output.traceback or output.stderr) if output else None


@lru_cache(KEPT)
def judged(output: LastOutput, exit_code: int | None, signal: int | None) -> tuple[str, Classification]:
    """Return the error in one line, empty if none was printed, and its kind."""
    found_signal = exits.signal_of(exit_code, signal)
    chain = chain_of(output) if output.traceback or found_signal is None else None
    if chain is not None and not tracebacks.is_report(chain) and not chain.is_harmless:
        if exit_code == PYTHONS_OWN and found_signal is None and (below := _final_lines(chain, output)):
            words = below[-1].strip()
            return f"{words[:250]} (after {_headline(chain)[:140]})", _of_final_lines(below, chain)
        if waited := ray_errors.of_waiting(chain.raised[0], output.stderr):
            return waited
        if unresolved := _of_unresolved_name(chain, output.stderr):
            return unresolved
        return _headline(chain), _of_printed_chain(chain, output, exit_code)
    found = (
        _of_signal(output, found_signal) if found_signal is not None else _of_exit(_beside(output, chain), exit_code)
    )
    if chain is not None and chain.is_harmless and not found[0] and found_signal is None:
        return _headline(chain), _of_printed_chain(chain, output, exit_code)
    return found


def _of_unresolved_name(chain: Chain, stderr: Sequence[str]) -> tuple[str, Classification] | None:
    """Judge a client of torch's store that timed out because it cannot resolve its server's name: only a warning says so."""
    place = _CONNECTS_TO.search(chain.raised[0].message)
    reasons = (_UNRESOLVED.search(line) for line in reversed(stderr)) if place else ()
    reason = next((one for one in reasons if one and place and one[1] == place[1]), None)
    if reason is None:
        return None
    host, _, port = reason[1].partition(", ")
    return f"cannot resolve {host}, to connect to its port {port}: {reason[2]}", (Kind.CONFIG, Certainty.SURE)


def is_from_hook(output: LastOutput, chain: Chain) -> bool:
    """Whether torch's own hook printed the chain, which it does as the process ends."""
    return bool(tracebacks.prefix_of((output.traceback or output.stderr)[chain.begin]))


def of_thread(output: LastOutput) -> tuple[str, Classification] | None:
    """Return the error that ended only a thread: the program may since be waiting for that thread's result."""
    chain = chain_of(output)
    return (_headline(chain), _of_printed_chain(chain, output)) if chain is not None and chain.is_harmless else None


def _beside(output: LastOutput, chain: Chain | None) -> LastOutput:
    """Return the text without the lines of a traceback that ended only a thread."""
    quoted = set(chain.lines) if chain else set()
    left = tuple(line for line in output.stderr if tracebacks.clean(line) not in quoted)
    return replace(output, stderr=tuple(line for line in left if not line.startswith("Exception in thread")))


def _of_printed_chain(chain: Chain, output: LastOutput, exit_code: int | None = None) -> Classification:
    """Classify a printed chain.

    Python exits with code 1 after an exception. With another code the process, or a child of it, printed this traceback
    and then chose its end.
    """
    found = error_kinds.of_chain(chain)
    if found[0] is Kind.SIGNAL and output.oom_kills:
        return Kind.HOST_MEMORY, _LIKELY
    is_chosen = exit_code not in (None, PYTHONS_OWN) and exits.signal_of(exit_code, None) is None
    return (found[0], _LIKELY) if chain.is_harmless or is_chosen or _went_on(chain, output) else found


def _went_on(chain: Chain, output: LastOutput) -> bool:
    """Whether something was printed below the traceback that may be what ended the rank.

    Then the traceback may be a child's, or one that was caught. With torch's prefix before it, it is the rank's own,
    and only another error counts.
    """
    lines = [tracebacks.clean(line) for line in output.stderr]
    printed = {tracebacks.clean(line) for line in chain.lines}
    last = max((at for at, line in enumerate(lines) if line.strip() and line in printed), default=len(lines))
    below = [line for line in lines[last + 1 :] if not (tracebacks.is_foreign(line) or _NATIVE_FRAME.match(line))]
    if is_from_hook(output, chain):
        return any(map(_is_loud, below))
    # The lines after the first of the message may not belong to it, unless it is known to be a long one.
    is_long = tracebacks.message_lines(chain.raised[-1].name) > tracebacks.MESSAGE_LINES
    message = [] if is_long else chain.raised[-1].message.split("\n")[1:]
    rest = [line for line in message if not line.startswith((" ", "\t"))]
    is_last_loud = bool(output.stdout) and _is_loud(tracebacks.clean(output.stdout[-1]))
    return is_last_loud or any(map(_is_loud, rest)) or any(not _QUIET.search(line) for line in below)


def _final_lines(chain: Chain, output: LastOutput) -> list[str]:
    """Return what the process printed below a traceback that it survived, its last error at the end; else nothing.

    Such as the message of `sys.exit("fatal: ...")`. It may as well be the rest of the exception's own message, so it
    has to call itself an error, or follow progress, or more lines than a message has. With torch's prefix the traceback
    is the one that ended the rank.
    """
    if is_from_hook(output, chain):
        return []
    below = _below(chain, output)
    if (
        below
        and below[-1][: tracebacks.MOST_CHARACTERS] in chain.raised[-1].message.split("\n")[tracebacks.MESSAGE_LINES :]
    ):
        return []  # a message longer than others
    while below and (not below[-1].strip() or tracebacks.is_foreign(below[-1]) or _NATIVE_FRAME.match(below[-1])):
        below.pop()
    if not below or below[-1][:1].isspace() or not _is_loud(below[-1]):
        return []
    return below if _has_gone_on(below) or _SEVERE.match(below[-1]) else []


def _has_gone_on(below: Sequence[str]) -> bool:
    """Whether these lines show progress, or are more than a message has."""
    return len(below) > tracebacks.MESSAGE_LINES or any(line.strip() and _QUIET.search(line) for line in below)


def _below(chain: Chain, output: LastOutput) -> list[str]:
    """Return the lines of stderr below the line that names the chain's last exception.

    What the interpreter prints at its end is left out, and all lines if the traceback was printed elsewhere.
    """
    lines = [tracebacks.clean(line) for line in output.stderr]
    last = chain.raised[-1]
    first = last.message.split("\n")[0]
    named = {last.name, f"{last.name}:", f"{last.name}: {first}"}
    at = next((index for index in range(len(lines) - 1, -1, -1) if lines[index] in named), None)
    if at is None:
        printed = {line for line in chain.lines if line.strip()}
        elsewhere = {tracebacks.clean(line) for line in output.stdout}
        if not printed.isdisjoint(lines) or not printed.isdisjoint(elsewhere):
            return []
        at = -1
    below = lines[at + 1 :]
    end = next((index for index, line in enumerate(below) if tracebacks.begins_another(line)), len(below))
    return below[:end]


def _of_final_lines(below: Sequence[str], chain: Chain) -> Classification:
    """Classify the error at the end of these lines.

    Where it names no kind, the traceback above them does, unless that is an echo, or the program went on after it.
    """
    kind = _of_plain_words(below[-1].strip())[0]
    above = error_kinds.of_chain(chain)[0]
    is_theirs = above not in failure_kinds.ECHOES and not _has_gone_on(below)
    return (above if kind is Kind.USER_CODE and is_theirs else kind), _LIKELY


def _is_loud(line: str) -> bool:
    return bool(_LOUD.search(line)) and not _QUIET.search(line)


def _headline(chain: Chain) -> str:
    """Return the first cause, with the last error if that differs."""
    first, last = (_without_place(_words(one)) for one in (chain.raised[0], chain.raised[-1]))
    is_same = first == last or chain.raised[0].short_name in last or "terminated with the following error" in last
    return first if is_same else f"{first[:250]} (then {last[:140].rstrip(' :')})"


_LAST_ERROR = re.compile(r"^Last error:\n(.{1,400})", re.MULTILINE)  # NCCL's own, below torch's lines about it


def _words(raised: tracebacks.Raised) -> str:
    found = _LAST_ERROR.search(raised.message)
    if found:
        return f"{raised.name}: {found[1].strip()}"
    return ray_errors.words(raised) or monarch_errors.words(raised) or raised.words


def _without_place(words: str) -> str:
    name, colon, message = words.partition(": ")
    return f"{name}{colon}{_WHERE.sub('', message)}"


_WHAT = re.compile(r"^\s*what\(\):\s*(.{1,2000})")
_THROWN = re.compile(r"terminate called after throwing an instance of '([^']{1,200})'")
# std::terminate without an exception: a native thread was still joinable when the process ran its exit handlers, as
# gloo's are after `sys.exit` without destroy_process_group.
_UNJOINED = re.compile(r"^terminate called without an active exception\s*$")
_FATAL = re.compile(r"^Fatal Python error: (.{1,400})")
_ASSERT = re.compile(
    r"^\S{1,200}: .{1,300}: Assertion `.{1,300}' failed|^(free|malloc|munmap_chunk|double free|corrupted|\*\*\* stack smashing|realloc)\b.{0,120}"
)
_USAGE = re.compile(r"^\s*usage: ", re.IGNORECASE)
_ARGUMENT = re.compile(r"^(?:\S{1,200}: error: |Error: |ERROR: )(.{0,1000})")
_NOT_STARTED = re.compile(
    r"^\S{0,300}: (can't open file .{1,500}|No module named \S{1,300}|Error while finding module specification .{1,400})"
)
_FLAGS = re.compile(r"^FATAL Flags parsing error:")  # absl explains the error in the next line, and exits with code 1
_HYDRA = re.compile(
    r"^(Could not override|Cannot find primary config|Could not load|Key '.{1,200}' is not in struct|You must specify|Missing mandatory value|Error merging|In '.{1,200}': |Primary config|Ambiguous value|mismatched input|LexerNoViableAltException)"
)
_LOUD = re.compile(
    r"\b(error|fatal|failed|failure|exception|cannot|can not|can't|could not|unable|not found|missing|invalid|abort(ed|ing)?|no such|denied|killed|panic|unsupported|refus\w+|required)\b",
    re.IGNORECASE,
)
_QUIET = re.compile(
    r"\b(info|debug|warn(ing)?)\b|Warning:|^\s*$|^\[?[WI]\d{4} |^\*+$|^Setting OMP_NUM_THREADS|^\s*\d{1,3}%\||it/s\]|NCCL INFO|^step\b|^epoch\b|^\W?\w{0,20}\W{0,3}\b(step|epoch|iter(ation)?)[\s=:#]{1,3}\d|^={3,}|^-{3,}",
    re.IGNORECASE,
)
_SEVERE = re.compile(r"^\W{0,3}(?:fatal|error|critical|abort(?:ed|ing)?|panic)\b(?! in\b)", re.IGNORECASE)
_NATIVE_FRAME = re.compile(r"^\s*frame #\d")
_OF_CODE = re.compile(rf"^\s|^{re.escape(tracebacks.HEAD)}")  # a traceback that broke off; its frames give no reason
_WATCHDOG = re.compile(r"(?:Watchdog caught collective operation timeout|failed to pass monitoredBarrier|Timed out waiting|Connection closed by)")  # fmt: skip


def _of_signal(output: LastOutput, signal: int) -> tuple[str, Classification]:
    """Return what native code printed before it was ended by a signal, else nothing."""
    lines = [tracebacks.clean(line) for line in output.stderr]
    if signal == SIGKILL:
        return _of_kill(output, lines)
    if signal == SIGABRT and any(map(_UNJOINED.match, lines[-3:])):
        return _of_abort_at_exit(output)
    words = _native(lines)
    text = "\n".join([words, *(line for line in lines[-15:] if _WATCHDOG.search(line))])
    found = failure_kinds.of_words(text)
    if found and found[0] is not Kind.IMPORT_ERROR:
        return words or _last_matching(lines, _WATCHDOG) or _loud(lines), found
    name = f"{exits.signal_name(signal)} ({signal})"
    return f"{words} ({name})" if words and signal != SIGABRT else words, (Kind.SIGNAL, _SURE)


def _of_abort_at_exit(output: LastOutput) -> tuple[str, Classification]:
    """Judge a process that was exiting when it aborted: what it printed before says why it exited, if anything does."""
    before = tuple(line for line in output.stderr if not _UNJOINED.match(tracebacks.clean(line)))
    words, (kind, _) = _of_exit(replace(output, stderr=before), None, ending="aborted by a native thread as it exited")
    if words:
        return words, (kind, _LIKELY)
    return "aborted by a native thread that still ran as it exited (SIGABRT)", (Kind.SIGNAL, _LIKELY)


def _of_kill(output: LastOutput, lines: Sequence[str]) -> tuple[str, Classification]:
    if any(re.search(r"out of memory|oom-kill|Cannot allocate memory", line, re.IGNORECASE) for line in lines[-10:]):
        return "", (Kind.HOST_MEMORY, _LIKELY)
    if output.oom_kills:
        return "killed by SIGKILL (9) when the kernel ran out of memory", (
            Kind.HOST_MEMORY,
            _LIKELY,
        )  # another process of its cgroup may have been the one that was killed
    return "", (Kind.SIGNAL, _LIKELY if output.oom_kills is None else _SURE)


def _native(lines: Sequence[str]) -> str:
    """Return the last message of C++ code or of the interpreter itself."""
    thrown = next((found[1] for line in reversed(lines) if (found := _THROWN.search(line))), "")
    if what := next((found[1] for line in reversed(lines) if (found := _WHAT.match(line))), ""):
        return f"{thrown}: {what}" if thrown else what
    if fatal := next((found[1] for line in reversed(lines) if (found := _FATAL.match(line))), ""):
        return f"Fatal Python error: {fatal}"
    return thrown or _last_matching(lines, _ASSERT)


def _of_exit(output: LastOutput, exit_code: int | None, *, ending: str = "") -> tuple[str, Classification]:
    """Judge a process that exited with a code and without a traceback, by its last message if that gives a reason."""
    errors = [tracebacks.clean(line) for line in output.stderr]
    ending = ending or exits.ending(exit_code, None)
    if not_started := next((found[1] for line in errors if (found := _NOT_STARTED.match(line))), ""):
        kind = Kind.CONFIG if not_started.startswith("can't open") else Kind.IMPORT_ERROR
        return not_started, (kind, _SURE)
    flags = next((at for at, line in enumerate(errors) if _FLAGS.match(line)), None)
    if flags is not None:
        return " ".join(errors[flags : flags + 2]), (Kind.CONFIG, _SURE)
    refused = next((line for line in reversed(errors) if _ARGUMENT.match(line)), "")
    if refused and (exit_code == 2 or any(_USAGE.match(line) for line in errors)):
        return refused, (Kind.CONFIG, _SURE)
    hydra = next((line for line in errors if _HYDRA.match(line)), "")
    if not hydra and any("HYDRA_FULL_ERROR" in line for line in errors):
        hydra = next((line for line in errors if _LOUD.search(line)), "")
    if hydra:
        return f"{hydra} ({ending})", (Kind.CONFIG, _SURE)
    if node := ray_errors.of_node(errors):
        return node
    if (native := _native(errors)) and (exit_code or 0) not in (0, 1):
        return native, failure_kinds.of_words(native) or (Kind.SIGNAL, _LIKELY)
    if logged := _logged(errors):
        return f"{_headline(logged)} ({ending})", _of_printed_chain(logged, output)
    words = _loud(errors) or _loud([tracebacks.clean(line) for line in output.stdout])
    if not words:
        words = next(
            (line for line in reversed(errors[-3:]) if not _QUIET.search(line) and not _OF_CODE.search(line)), ""
        )
    if exit_code in (126, 127):
        return f"{words or exits.explained(exit_code, None)}", (Kind.CONFIG, _SURE)
    if not words:
        return "", (Kind.UNKNOWN, _LIKELY)
    return f"{words.strip()} ({ending})", _of_plain_words(words)


def _logged(lines: Sequence[str]) -> Chain | None:
    """Return the traceback within the last line of JSON, as written by structured loggers."""
    line = next((one for one in reversed(lines[-5:]) if one.startswith("{") and tracebacks.HEAD in one), "")
    try:
        record = json.loads(line) if line else {}
    except ValueError:
        return None
    texts = [value for value in record.values() if isinstance(value, str) and tracebacks.HEAD in value]
    return tracebacks.last_chain(texts[0].split("\n")) if texts else None


_PLAIN: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (Kind.IMPORT_ERROR, re.compile(r"No module named|ModuleNotFoundError|ImportError|not installed", re.IGNORECASE)),
    (Kind.CONFIG, re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+ (is|was|are) (not set|unset|missing|required|undefined|empty)|config|\bsetting|hyper-?param|argument|option|environment variable|\byaml\b|\btoml\b|usage:", re.IGNORECASE)),
    (Kind.DATA, re.compile(r"No such file|data ?set|\bdata\b|\bshard|corrupt|checksum|\brecord|manifest|decode", re.IGNORECASE)),
)  # fmt: skip


def _of_plain_words(words: str) -> Classification:
    if re.search(r"^Killed$", words.strip()):
        return Kind.HOST_MEMORY, _LIKELY
    if found := failure_kinds.of_words(words):
        return found[0], _LIKELY
    named = re.match(r"^(?:\S{0,40} ){0,3}([A-Za-z_][\w.]{0,80}(?:Error|Exception)): (.*)", words)
    if named and (found := error_kinds.of_raised(tracebacks.Raised(named[1], named[2])))[0] is not Kind.USER_CODE:
        return found[0], _LIKELY
    return next((kind for kind, pattern in _PLAIN if pattern.search(words)), Kind.USER_CODE), _LIKELY


def _loud(lines: Sequence[str]) -> str:
    """Return the last line that looks like an error."""
    return next((line.strip() for line in reversed(lines[-25:]) if _LOUD.search(line) and not _QUIET.search(line)), "")


def _last_matching(lines: Sequence[str], pattern: re.Pattern[str]) -> str:
    return next((line.strip() for line in reversed(lines) if pattern.search(line)), "")


def shown(output: LastOutput) -> list[str]:
    """Return the traceback's lines; for a crash in native code what the interpreter printed instead."""
    chain = chain_of(output)
    if chain is not None and not tracebacks.is_report(chain):
        return list(chain.lines)
    lines = [tracebacks.clean(line) for line in output.stderr]
    begin = next((at for at, line in enumerate(lines) if _FATAL.match(line) or _THROWN.search(line)), None)
    return tracebacks.kept(lines[begin:]) if begin is not None else []
