"""Find tracebacks in printed lines: the chain that ended the process, its exceptions, and the user's own frames. Pure.

Lines come as they were printed: torch's excepthook and torchrun put `[rank2]: ` or `[default2]:` before each of them, a
DataLoader's worker is quoted within its parent's error, an ExceptionGroup draws a frame around its errors.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

MOST_LINES = 160  # of a stored chain; a longer one loses its middle
MOST_CHARACTERS = 500  # of a line
MESSAGE_LINES = 12  # NCCL and DataLoader explain themselves in the lines below an exception's first
LONG_LINES = 80  # of Ray's reports about memory, or about the ranks of Ray Train, which have blank lines in between
RICH_LINES = 2000  # of one box
CUT_FRAMES = 3  # of a traceback that lost its beginning
READ_CHARACTERS = 1000  # of a line: the rest is not searched, so that a hostile one costs little
HEAD = "Traceback (most recent call last)"
_MARK = "(most recent call last)"  # in each line that begins one

# torch ends its prefix with a space, torchrun puts none behind role and local rank.
_PREFIX = re.compile(r"\[rank\d{1,7}\]:[ ]?|\[[a-z][a-z_]{0,30}?\d{1,7}\]:")
# A progress bar has no newline of its own: a traceback then begins on its line.
_BAR = re.compile(
    r"^.{0,300}?(?:\d%\||it/s|s/it).{0,100}?(?=(?:\[rank\d{1,7}\]:[ ])?Traceback \(most recent call last\):\s*$)"
)
_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|[@-Z\\-_])")
# A failed distributed checkpoint quotes the tracebacks of the ranks that could not write theirs.
QUOTED_RANK = re.compile(r"^\s*Traceback \(most recent call last\): \(RANK (\d{1,7})\)\s*$")
_HEAD = re.compile(
    r"^(?:[\s|+]*)(?:Exception Group |Original |actor explicitly aborted due to: )?"
    r"Traceback (?:of where the remote call failed )?\(most recent call last\):?(?: \(RANK \d{1,7}\))?\s*$"
)
# A DataLoader's worker, and an actor of Monarch's (monarch/_src/actor/actor_mesh.py).
_QUOTED_HEAD = re.compile(r"Original Traceback|remote call failed \(most|aborted due to: Traceback")
_RICH_HEAD = re.compile(r"^╭─+ ?Traceback \(most recent call last\) ?─+╮\s*$")
_RICH_END = re.compile(r"^╰─+╯\s*$")
_LINKS = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
FRAME = re.compile(r'^(?:> )?\s*File "([^"]{1,400})", line (\d+)(?:, in (.{1,200}))?')
_RAISED = re.compile(
    r"^([A-Za-z_][\w.]{0,150}(?:\.<locals>\.\w{1,80}|(?<=RayTaskError)\(\w{1,150}\))?)(?::(?:[ ](.*))?)?$"
)
# Ray prints this in place of "Traceback ..." before the frames of a task or an actor's method (ray/exceptions.py).
_REMOTE = re.compile(r"\bray::.{1,300}? \(pid=\d{1,10}, ip=.{1,500}\)\s*$")
_SYNTAX = re.compile(r"^(SyntaxError|IndentationError|TabError):")
# These tracebacks do not end a process: they only count if there is no other.
_HARMLESS = re.compile(
    r"^(Exception in thread|Exception ignored in|Exception in callback|Error in atexit|--- Logging error ---"
    r"|Task exception was never retrieved|Unraisable exception)"
)
# torchrun's report of its ranks, and the end of one that was asked to end.
_REPORTS = ("ChildFailedError", "SignalException")
# Lines that follow an exception but do not belong to its message: C++ logs, an abort, Python's own end, warnings.
_FOREIGN = re.compile(
    r"^(\[?[WIEF]\d{4} |\[[-\w]{1,20}\][WIEF]\d{4} |\[[WIEF]\d* |\[[WIEF]\d{3} |terminate called|Fatal Python error|Exception |swanlab:|wandb: |sys:1: "
    r"|\S{0,300}:\d+: \w*Warning: |\d{4}-\d\d-\d\d[ T]\d\d:\d\d)"
)
_LIBRARY = re.compile(r"(^<frozen |/site-packages/|/dist-packages/|/lib(?:64)?/python\d|/torch/|\.pyz/)")
_LONG = re.compile(r"^ray\.(?:exceptions\.OutOfMemoryError|train\.\w{1,60})\b")
_CARRIER = re.compile(r"^monarch\.[\w.]{1,100}\.(?:ActorError|SupervisionError)\Z")
_WRAPPER = re.compile(r"^(?:ray\.exceptions\.)?RayTaskError\b")
_WANTED_ENDS = (("SystemExit", "0"), ("SystemExit", ""), ("SystemExit", "None"), ("GeneratorExit", ""))
_QUOTE = "terminated with the following error"  # torch.multiprocessing.spawn
_RAISES_TEXT = re.compile(r"\braise\b.*(?:traceback|format_exc|\btb|tb\b)")
# A first line that says only that something follows: torch's load_state_dict, pydantic's "2 validation errors for Config".
_ANNOUNCES = re.compile(r":\Z|^\d{1,6} validation errors? for \S{1,200}\Z")
_LEFT_OUT = "  ... {} lines left out ..."


@dataclass(frozen=True)
class Raised:
    """One exception: its class as printed, its message, and where it was raised, innermost frame last."""

    name: str
    message: str = ""
    frames: tuple[tuple[str, str, str], ...] = ()  # (file, function, the line of code)

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def words(self) -> str:
        """The error itself in one line; its class if it has no message."""
        first, *more = [line.strip() for line in self.message.split("\n") if line.strip()] or [""]
        if more and _ANNOUNCES.search(first):
            first = f"{first} {more[0]}"
        return f"{self.name}: {first}" if first else self.name


@dataclass(frozen=True)
class Chain:
    """Linked exceptions, the first cause first, and their lines from `begin` up to and excluding `end`."""

    raised: tuple[Raised, ...]
    lines: tuple[str, ...]
    begin: int
    end: int
    is_harmless: bool = False


def clean(line: str) -> str:
    """Return a line without colours and without the prefixes of torch and torchrun."""
    line = line[:READ_CHARACTERS]
    line = _without_bar(_ANSI.sub("", line) if "\x1b" in line else line)
    for _ in range(3):
        if not line.startswith("[") or not (found := _PREFIX.match(line)):
            break
        line = line[found.end() :]
    return line.rstrip("\r\n")


def _without_bar(line: str) -> str:
    return _BAR.sub("", line[:READ_CHARACTERS]) if HEAD in line else line


def prefix_of(line: str) -> str:
    """Return the prefix that torch and torchrun put before a line: it is the same for all lines of a rank."""
    line = _without_bar(_ANSI.sub("", line) if "\x1b" in line else line)
    at = 0
    while at < 60 and (found := _PREFIX.match(line, at)):
        at = found.end()
    return line[:at].rstrip()


def last_chain(lines: Sequence[str]) -> Chain | None:
    """Return the chain of tracebacks that ended the process: the last one not from a thread or from torchrun."""
    found = chains(lines)
    fatal = [one for one in found if not one.is_harmless and not is_report(one)]
    ordered = fatal or [one for one in found if not is_report(one)] or found
    return ordered[-1] if ordered else None


def chains(lines: Sequence[str]) -> list[Chain]:
    """Return all chains, in order. Lines of several ranks must be separated before."""
    text = [clean(line) for line in lines]
    prefixes = [prefix_of(line) for line in lines]
    blocks = _blocks(text, prefixes) or _cut_block(text, prefixes)
    groups: list[list[_Block]] = []
    for block in blocks:
        if groups and not block.is_nested:
            is_of_task = _is_remote(text[block.begin]) and any(one.quotes for one in groups[-1])
            is_quoted = _is_quoted(text, groups[-1][-1], block)
            block = replace(block, is_nested=is_of_task or is_quoted)
            groups[-1][-1] = replace(groups[-1][-1], quotes=groups[-1][-1].quotes or is_quoted)
        if groups and _belongs(text, groups[-1][-1], block):
            groups[-1].append(block)
        else:
            groups.append([block])
    return [_chain(text, group) for group in groups]


def kept(lines: Sequence[str]) -> list[str]:
    """Return at most MOST_LINES lines: the first cause and the end stay, the middle of a very long chain is cut."""
    cut = [line[:MOST_CHARACTERS] for line in lines]
    if len(cut) <= MOST_LINES:
        return cut
    half = MOST_LINES // 2
    return [*cut[:half], _LEFT_OUT.format(len(cut) - 2 * half), *cut[-half:]]


def is_library(path: str) -> bool:
    return bool(_LIBRARY.search(path))


@dataclass(frozen=True)
class _Block:
    """One traceback: its first line, the line after its last, and the exception."""

    begin: int
    end: int
    raised: Raised
    is_nested: bool = False  # quoted within the message of the previous one
    quotes: bool = False  # its message ends with the first line of another one


def _blocks(text: Sequence[str], prefixes: Sequence[str]) -> list[_Block]:
    found: list[_Block] = []
    at = 0
    while at < len(text):
        block = None
        if _MARK in text[at]:
            if _HEAD.match(text[at]):
                block = _read_block(text, prefixes, at)
            elif _RICH_HEAD.match(text[at].strip()):
                block = _read_rich(text, prefixes, at)
        elif text[at].startswith('  File "'):
            block = _read_syntax(text, at)
        elif _is_remote(text[at]):
            block = _read_block(text, prefixes, at)
        if block is None:
            at += 1
            continue
        found.append(block)
        at = max(at + 1, block.end)
        while block := _read_quoted(text, prefixes, block):
            found.append(block)
            at = max(at, block.end)
    return found


def _read_quoted(text: Sequence[str], prefixes: Sequence[str], outer: _Block) -> _Block | None:
    """Read a traceback that begins on the very line that names the exception."""
    inner = _read_block(text, prefixes, outer.end - 1) if outer.quotes else None
    return replace(inner, begin=outer.end, is_nested=True) if inner else None


def _is_quoted(text: Sequence[str], first: _Block, second: _Block) -> bool:
    """Whether the second traceback is part of the first one's message, as in `RuntimeError(f"failed: {text}")`.

    Two tracebacks that were printed one after the other look alike but for how the message leads to the second.
    """
    if any(line.strip() for line in text[first.end : second.begin]):
        return False
    last = first.raised.message.rstrip().rpartition("\n")[2].rstrip()
    if _HARMLESS.match(last):  # begins what follows, and is no message
        return False
    code = first.raised.frames[-1][2] if first.raised.frames else ""
    return last.endswith(":") or "traceback" in last.lower() or not last or bool(_RAISES_TEXT.search(code))


def _cut_block(text: Sequence[str], prefixes: Sequence[str]) -> list[_Block]:
    """Read a traceback without its beginning, as of an endless recursion: the first lines are frames already."""
    begin = next((at for at, line in enumerate(text) if not line.startswith(" ") or FRAME.match(line)), len(text))
    if begin == len(text) or not FRAME.match(text[begin]):
        return []
    block = _read_block(text, prefixes, begin, is_cut=True)
    return [block] if block and len(block.raised.frames) >= CUT_FRAMES else []


def _read_block(text: Sequence[str], prefixes: Sequence[str], begin: int, *, is_cut: bool = False) -> _Block | None:
    """Read from "Traceback" to the end of the message. None if it breaks off before an exception is named."""
    margin = _margin(text[begin])
    frames: list[tuple[str, str, str]] = []
    at = begin if is_cut else begin + 1
    while at < len(text):
        line = _within(text[at], margin)
        if _HEAD.match(text[at]) or _is_remote(text[at]):
            return None
        if frame := FRAME.match(line):
            code = _within(text[at + 1], margin).strip() if at + 1 < len(text) else ""
            frames.append((frame[1], frame[3] or "", "" if FRAME.match(code) else code))
        elif line.strip() and not line.startswith(" ") and (raised := _RAISED.match(line)):
            if (before := _before_quoted(raised[2] or "")) is not None:
                error = Raised(raised[1], before, tuple(frames))
                return _Block(begin, at + 1, error, bool(margin), quotes=True)
            end = _message_end(text, prefixes, at, margin=margin, most=message_lines(raised[1]))
            message = [raised[2] or "", *(_within(one, margin) for one in text[at + 1 : end])]
            error = Raised(raised[1], "\n".join(message).rstrip(), tuple(frames))
            is_nested = bool(_QUOTED_HEAD.search(text[begin]) or margin.strip())
            return _Block(begin, end, error, is_nested)
        elif line.strip() and not line.startswith(" ") and not frames:
            return None
        at += 1
    return None


def _is_remote(line: str) -> bool:
    return line.startswith("ray::") and bool(_REMOTE.match(line))


def _before_quoted(message: str) -> str | None:
    """Return what a message says before the first line of another traceback; None if it quotes none."""
    if message.startswith(HEAD):
        return ""
    found = _REMOTE.search(message) if "ray::" in message else None
    return message[: found.start()].rstrip(" ,") if found else None


def _margin(line: str) -> str:
    """Return what an ExceptionGroup draws before each line of the errors within it, or a quotation's indentation."""
    found = re.match(r"^[\s|+]*[|+][\s|+]*|^\s+(?=Traceback|actor explicitly)", line)
    return found[0] if found else ""


def _within(line: str, margin: str) -> str:
    if not margin:
        return line
    width = len(margin)
    return line[width:] if len(line) > width and not line[:width].strip(" |+-") else line.lstrip(" |+-")


def _message_end(text: Sequence[str], prefixes: Sequence[str], begin: int, *, margin: str, most: int) -> int:
    """Return the line after the message of the exception named at `begin`."""
    at = begin + 1
    while at < len(text) and at - begin < most:
        line = text[at]
        is_others = prefixes[at] != prefixes[begin] and line.strip()  # torch puts nothing before an empty line
        if (
            _MARK in line
            or _within(line, margin).startswith(_LINKS)
            or is_foreign(line)
            or is_others
            or _is_remote(line)
        ):
            break
        if margin and (re.match(r"^[\s|+]*\+-", line) or not line.lstrip().startswith("|")):
            break
        if FRAME.match(line) and text[at - 1].strip() == "":
            break
        at += 1
    while at > begin + 1 and not text[at - 1].strip(' "'):
        at -= 1
    return at


def _read_syntax(text: Sequence[str], begin: int) -> _Block | None:
    """Read the error of a script that does not compile: its place and the error, without the word Traceback."""
    for at in range(begin + 1, min(begin + 6, len(text))):
        if _SYNTAX.match(text[at]):
            name, _, message = text[at].partition(": ")
            frame = FRAME.match(text[begin])
            frames = ((frame[1], "", text[begin + 1].strip()),) if frame else ()
            return _Block(begin, at + 1, Raised(name, message, frames))
        if not text[at].startswith(" "):
            return None
    return None


def _read_rich(text: Sequence[str], prefixes: Sequence[str], begin: int) -> _Block | None:
    """Read a traceback drawn by the library rich: a box of frames, the error below, wrapped at the width of the box."""
    among = range(begin + 1, min(begin + RICH_LINES, len(text)))
    end = next((at for at in among if _RICH_END.match(text[at].strip())), None)
    if end is None or end + 1 >= len(text) or not (raised := _RAISED.match(text[end + 1].strip())):
        return None
    places = (re.match(r"^│ (\S+):(\d+) in (\S+)", line.strip()) for line in text[begin:end])
    frames = tuple((one[1], one[3], "") for one in places if one)
    last = _message_end(text, prefixes, end + 1, margin="", most=message_lines(raised[1]))
    message = _unwrapped(
        [raised[2] or "", *text[end + 2 : last]], first=len(raised[1]) + 2, width=len(text[begin].strip())
    )
    return _Block(begin, last, Raised(raised[1], message, frames))


def _unwrapped(lines: Sequence[str], *, first: int, width: int) -> str:
    """Join lines that were wrapped at `width` between words; `first` characters stood before the first one."""
    text, used = lines[0].rstrip(), first + len(lines[0].rstrip())
    for line in lines[1:]:
        is_wrapped = line.strip() and used + 1 + len(line.split()[0]) > width
        text, used = f"{text}{' ' if is_wrapped else chr(10)}{line.rstrip()}", len(line.rstrip())
    return text.rstrip()


def _belongs(text: Sequence[str], first: _Block, second: _Block) -> bool:
    """Whether both belong to one chain: linked by Python's own message, or the second is quoted within the first."""
    between = text[first.end : second.begin]
    if second.is_nested and len(between) <= 8:
        return True
    if len(between) <= 8 and any(line.lstrip(" |+").startswith(_LINKS) for line in between):
        return True
    return _QUOTE in first.raised.message and len(between) <= 3


def _chain(text: Sequence[str], group: Sequence[_Block]) -> Chain:
    begin, end = group[0].begin, group[-1].end
    before = [line for line in text[max(0, begin - 2) : begin] if line.strip()]
    is_harmless = any(_HARMLESS.match(line) for line in before)
    return Chain(
        tuple(_causes(_without_wrappers(_in_order(group)))), tuple(kept(text[begin:end])), begin, end, is_harmless
    )


def _causes(raised: Sequence[Raised]) -> Sequence[Raised]:
    """Drop an exit with code 0 that another error interrupted: the program's cleanup failed, not the program."""
    first = next((at for at, one in enumerate(raised) if (one.short_name, one.message) not in _WANTED_ENDS), 0)
    return raised[first:]


def _in_order(group: Sequence[_Block]) -> list[Raised]:
    """Return the exceptions, first cause first. An error quoted within another is its cause, but printed after it."""
    ordered: list[Raised] = []
    at = 0
    while at < len(group):
        stop = at + 1
        while stop < len(group) and (group[stop].is_nested or _QUOTE in group[stop - 1].raised.message):
            stop += 1
        outer, *inner = group[at:stop]
        ordered += [*_of_quoted(inner), outer.raised]
        at = stop
    return ordered


def _of_quoted(group: Sequence[_Block]) -> list[Raised]:
    """Return the exceptions of a message; one that quotes others itself comes after them."""
    for at, one in enumerate(group):
        if one.quotes:
            return [*(before.raised for before in group[:at]), *_of_quoted(group[at + 1 :]), one.raised]
    return [one.raised for one in group]


def _without_wrappers(raised: Sequence[Raised]) -> Sequence[Raised]:
    """Drop what only carries a task's or an actor's error to where its result was asked for."""
    left = [one for one in raised if one.message or not _WRAPPER.match(one.name)] or raised
    if any(map(carries_actors_end, left)):  # Monarch also interrupts the script that waits
        left = [one for one in left if one.name != "KeyboardInterrupt"]
        left = [one for one in left if not carries_actors_end(one)] or left
    return left


def carries_actors_end(raised: Raised) -> bool:
    """Whether Monarch raised it in the script because of what happened in an actor's process."""
    return bool(_CARRIER.match(raised.name))


def is_foreign(line: str) -> bool:
    """Whether a line below an exception surely does not belong to its message: a log of native code, a warning."""
    return bool(_FOREIGN.match(line))


def begins_another(line: str) -> bool:
    """Whether a line begins another traceback, or what the interpreter prints about threads and destructors."""
    return _MARK in line or bool(_HARMLESS.match(line))


def message_lines(name: str) -> int:
    """Return how many lines the message of an exception may have; what follows is not searched for its end."""
    return LONG_LINES if _LONG.match(name) else MESSAGE_LINES


def is_report(chain: Chain) -> bool:
    """Whether it is torchrun's own report of a rank that failed: never a cause."""
    return chain.raised[-1].name.endswith(_REPORTS)
