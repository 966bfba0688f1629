"""Describe exit codes and signals in words, for pages, API, CLI, events and notes. No other module does. Pure."""

import signal as signals

SHELL_SIGNAL = 128  # a shell reports death by signal n as exit code 128 + n (POSIX sh, 2.8.2)
LAST_SIGNAL = 64

_NAMES: dict[int, str] = {one.value: one.name for one in signals.Signals}
_SIGNAL_HINTS: dict[int, str] = {
    signals.SIGKILL: "killed by hand, or by the kernel for lack of memory",
    signals.SIGSEGV: "a crash in native code",
    signals.SIGABRT: "native code aborted the process",
    signals.SIGBUS: "often a full /dev/shm",
    signals.SIGILL: "an instruction that this processor lacks",
    signals.SIGFPE: "an arithmetic error in native code",
    signals.SIGTERM: "something asked it to end",
    signals.SIGINT: "it was interrupted",
}
_CODE_HINTS = {
    2: "often a wrong argument",
    124: "what the command timeout gives when its time is over",
    126: "the command cannot be executed; often it is not marked as executable (chmod +x)",
    127: "the command was not found",
}


def signal_of(exit_code: int | None, signal: int | None) -> int | None:
    """Return the signal that ended a process, also if a shell in between reported it as an exit code."""
    if signal is not None or exit_code is None:
        return signal
    number = exit_code - SHELL_SIGNAL
    return number if 0 < number <= LAST_SIGNAL and number in _NAMES else None


def code_of(exit_code: int | None, signal: int | None) -> int | None:
    """Return the exit code as a shell reports it: 128 + n for a process that signal n ended; None if neither is known."""
    return exit_code if signal is None else SHELL_SIGNAL + signal


def signal_name(signal: int) -> str:
    return _NAMES.get(signal, f"signal {signal}")


def ending(exit_code: int | None, signal: int | None) -> str:
    """Return the second half of a sentence: "rank 5" + "exited with code 1"."""
    found = signal_of(exit_code, signal)
    if found is not None:
        number = f"exit code {exit_code}" if signal is None else str(found)
        name = _NAMES.get(found)
        return f"was ended by {name} ({number})" if name else f"was ended by signal {found}"
    return "ended without an exit code" if exit_code is None else f"exited with code {exit_code}"


def explained(exit_code: int | None, signal: int | None) -> str:
    """Return the same with its usual cause: "was ended by SIGSEGV (11): a crash in native code"."""
    found = signal_of(exit_code, signal)
    hint = _SIGNAL_HINTS.get(found, "") if found is not None else _CODE_HINTS.get(exit_code or 0, "")
    words = ending(exit_code, signal)
    return f"{words}: {hint}" if hint else words


def brief(exit_code: int | None, signal: int | None) -> str:
    """Return text for a table cell: "exit 1", "SIGKILL"; "" for a successful or unknown end."""
    found = signal_of(exit_code, signal)
    if found is not None:
        return signal_name(found)
    return f"exit {exit_code}" if exit_code else ""
