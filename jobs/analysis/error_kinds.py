"""Classify an exception: by its class, by its message, and by the code that raised it. Pure."""

import re

from jobs.core.failure_kinds import ECHOES, MOST_CHARACTERS, Certainty, Classification, Kind, of_words

from . import monarch_errors, ray_errors
from .tracebacks import Chain, Raised, is_library

# By the exception's class, by its last component or the module before it.
_CLASSES: dict[str, Classification] = {
    **dict.fromkeys(["ModuleNotFoundError", "ImportError", "DistributionNotFound", "PackageNotFoundError"],
                    (Kind.IMPORT_ERROR, Certainty.SURE)),
    **dict.fromkeys(["MemoryError", "_ArrayMemoryError"], (Kind.HOST_MEMORY, Certainty.SURE)),
    **dict.fromkeys(["OutOfMemoryError"], (Kind.DEVICE_MEMORY, Certainty.SURE)),
    **dict.fromkeys(
        ["MissingMandatoryValue", "ConfigAttributeError", "ConfigKeyError", "ConfigTypeError", "ConfigIndexError",
         "ConfigValueError", "InterpolationKeyError", "InterpolationResolutionError", "UnsupportedInterpolationType",
         "UnsupportedValueType", "MissingConfigException", "ConfigCompositionException", "OverrideParseException",
         "InstantiationException", "HydraException", "TOMLDecodeError", "TomlDecodeError", "ScannerError", "ComposerError",
         "ConstructorError", "ArgumentError", "ArgumentTypeError", "BadParameter", "UsageError",
         "NoSuchOption", "MissingParameter", "MissingSectionHeaderError", "NoSectionError", "NoOptionError",
         "DuplicateOptionError", "MissingValueError", "WrongTypeError", "UnexpectedDataError", "IllegalFlagValueError",
         "UnrecognizedFlagError"],
        (Kind.CONFIG, Certainty.SURE)),
    **dict.fromkeys(
        ["UnicodeDecodeError", "UnidentifiedImageError", "BadGzipFile", "BadZipFile", "ReadError", "UnpicklingError", "LZMAError",
         "ParserError", "EmptyDataError", "ArrowInvalid", "SafetensorError", "DatasetNotFoundError", "DataFilesNotFoundError",
         "DatasetGenerationError", "RepositoryNotFoundError", "EntryNotFoundError", "LocalEntryNotFoundError",
         "InvalidDataError", "NonMatchingSplitsSizesError", "ZstdError", "CorruptedError", "DataLossError"],
        (Kind.DATA, Certainty.SURE)),
    **dict.fromkeys(["DistNetworkError", "DistStoreError"], (Kind.CONNECTION_LOST, Certainty.SURE)),
}  # fmt: skip
_MODULES: tuple[tuple[str, Classification], ...] = (
    ("omegaconf.", (Kind.CONFIG, Certainty.SURE)),
    ("hydra.", (Kind.CONFIG, Certainty.SURE)),
    ("yaml.", (Kind.CONFIG, Certainty.SURE)),
    ("configparser.", (Kind.CONFIG, Certainty.SURE)),
    ("argparse.", (Kind.CONFIG, Certainty.SURE)),
    ("pydantic", (Kind.CONFIG, Certainty.SURE)),
    ("jsonschema.", (Kind.CONFIG, Certainty.SURE)),
    ("dacite.", (Kind.CONFIG, Certainty.SURE)),
    ("absl.flags.", (Kind.CONFIG, Certainty.SURE)),
    ("zlib.", (Kind.DATA, Certainty.SURE)),
    ("lzma.", (Kind.DATA, Certainty.SURE)),
    ("_csv.", (Kind.DATA, Certainty.SURE)),
    ("csv.", (Kind.DATA, Certainty.SURE)),
    ("xml.", (Kind.DATA, Certainty.LIKELY)),
    ("struct.", (Kind.DATA, Certainty.LIKELY)),
    ("lmdb.", (Kind.DATA, Certainty.LIKELY)),
    ("av.", (Kind.DATA, Certainty.LIKELY)),
    ("torch.distributed.Dist", (Kind.CONNECTION_LOST, Certainty.LIKELY)),
)
# Errors whose class name describes the cause.
_NAMED: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (Kind.CONFIG, re.compile(r"(Config|Configuration|Settings|Hyper[Pp]aram\w*|Hparams?|Argument|Option)(Validation)?\w{0,20}(Error|Exception)$")),
    (Kind.DATA, re.compile(r"(Data|Dataset|Record|Shard|Sample|Corrupt\w*|Decode|Decoding|Tokeniz\w+|Schema)\w{0,20}(Error|Exception)$")),
)  # fmt: skip
# Plain programming mistakes; their messages may quote anything.
_OWN = frozenset(
    {"SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError", "AttributeError", "TypeError",
     "AssertionError", "IndexError", "ZeroDivisionError", "NotImplementedError", "RecursionError", "StopIteration",
     "FloatingPointError", "OverflowError", "ArithmeticError", "UnicodeEncodeError", "LinAlgError"}
)  # fmt: skip
_ABOUT_THE_MACHINE = frozenset({Kind.HARDWARE, Kind.IMPORT_ERROR, Kind.CONFIG, Kind.DEVICE_MEMORY})
_OF_A_CONFIG = re.compile(
    r"config|\bcfg\b|\bconf\b|hparams|settings|environ|argparse|\bargs\b|\bopts?\b|omegaconf|yaml|toml|\.ini\b|hydra|getenv",
    re.IGNORECASE,
)
_OF_DATA = re.compile(
    r"data|loader|sample|record|shard|label|image|token|vocab|corpus|csv|parquet|jsonl|\brow\b|\.txt|\.npy|\.npz|\.bin|checkpoint|"
    r"ckpt|\.pt\b|weights|read|parse|decode|open\(",
    re.IGNORECASE,
)
_CONFIG_FILE = re.compile(
    r"\.(ya?ml|toml|ini|cfg|conf|env)['\"]?$|(config|conf|settings|hparams)[^/'\"]{0,40}\.json['\"]?$|/conf(ig)?s?/|^['\"]?conf(ig)?s?/",
    re.IGNORECASE,
)
_NO_FILE = re.compile(r"No such file or directory|Is a directory|Not a directory|does not exist|Permission denied")
_WRITES = re.compile(
    r"open\(.{0,200}['\"][wax]b?\+?['\"]|\b(mkdir|makedirs|touch|save\w{0,20}|dump|write\w{0,20}|rename|replace|unlink|rmtree)\("
)
# A message that names a file and a position in it blames the data there, whatever raises it.
_RECORD = re.compile(
    r"\S\.(tar|jsonl?|csv|tsv|parquet|arrow|npy|npz|tfrecord|bin|idx|h5|hdf5|txt)\b.{0,80}\b(sample|record|row|line|entry|item|offset|index)\W{1,3}\d",
    re.IGNORECASE,
)
_PATH = re.compile(r"['\"]([^'\"]{1,400})['\"]\s*$")
_SURE_OWN: Classification = (Kind.USER_CODE, Certainty.SURE)


def of_chain(chain: Chain) -> Classification:
    """Return the kind of the first cause; if that is only a programming mistake, a later error may be more specific."""
    first = of_raised(chain.raised[0])
    if first[0] is not Kind.USER_CODE:
        return first
    for one in chain.raised[1:]:
        later = of_raised(one)
        if later[0] not in ECHOES and later[0] not in (Kind.USER_CODE, Kind.SIGNAL):
            return later[0], Certainty.LIKELY
    return first


def of_raised(raised: Raised) -> Classification:
    name, message = raised.short_name, raised.message[:MOST_CHARACTERS]
    if name in ("SystemExit", "KeyboardInterrupt"):
        return (Kind.SIGNAL, Certainty.LIKELY) if name == "KeyboardInterrupt" else (Kind.USER_CODE, Certainty.LIKELY)
    if name in _OWN and not raised.name.startswith(("torch.", "pydantic", "omegaconf.")):
        return _own(raised)
    if found := ray_errors.kind(raised) or monarch_errors.kind(raised):
        return found
    if found := _CLASSES.get(name):
        return _more_specific(found, message)
    if _is_of_a_worker(raised):
        return Kind.SIGNAL, Certainty.LIKELY
    if found := of_words(f"{raised.name}: {message}"):
        return found
    if found := next((found for module, found in _MODULES if raised.name.startswith(module)), None):
        return found
    if found := _by_frames(raised):
        return found
    if named := next((kind for kind, pattern in _NAMED if pattern.search(name)), None):
        return named, Certainty.LIKELY
    return _SURE_OWN


def _own(raised: Raised) -> Classification:
    """Return user code, unless the mistake is about a missing library or the device."""
    found = of_words(raised.message)
    is_about_more = found is not None and found[0] in _ABOUT_THE_MACHINE
    return (found[0], Certainty.LIKELY) if found and is_about_more else _SURE_OWN


def _more_specific(found: Classification, message: str) -> Classification:
    """Return what the message of a lost connection says: a timeout, or an address of the process's own."""
    if (
        found[0] is Kind.CONNECTION_LOST
        and (words := of_words(message))
        and words[0] in (Kind.COMM_TIMEOUT, Kind.CONFIG)
    ):
        return words
    return found


def _is_of_a_worker(raised: Raised) -> bool:
    """Whether it lost the process of its own DataLoader or pool: no other rank is involved."""
    is_lost = raised.short_name in ("ConnectionResetError", "EOFError", "BrokenPipeError", "ConnectionRefusedError")
    return is_lost and any("/multiprocessing/" in path for path, _, _ in raised.frames[-3:])


def _by_frames(raised: Raised) -> Classification | None:
    """Classify errors with many possible causes, by the file they name and the code that used it."""
    name, message = raised.short_name, raised.message
    if name in ("FileNotFoundError", "IsADirectoryError", "NotADirectoryError", "PermissionError", "FileExistsError"):
        return _of_file(raised)
    if (
        name == "MisconfigurationException"
    ):  # Lightning's, for its own options and for hooks that return the wrong thing
        is_option = re.search(
            r"Trainer\(|argument|\bflag|strategy|accelerator|devices?\b|precision|not supported", message
        )
        return (Kind.CONFIG if is_option else Kind.USER_CODE), Certainty.LIKELY
    if name in ("ValueError", "RuntimeError") and _RECORD.search(message):
        return Kind.DATA, Certainty.LIKELY
    if name == "JSONDecodeError":
        return (Kind.CONFIG if _is_about(raised, _OF_A_CONFIG) else Kind.DATA), Certainty.LIKELY
    if name == "EOFError":
        return Kind.DATA, Certainty.LIKELY
    if name == "OSError" and _NO_FILE.search(message):
        return _of_file(raised)
    if name == "KeyError":
        if any(path.endswith("os.py") or "environ" in code for path, _, code in raised.frames[-2:]):
            return Kind.CONFIG, Certainty.SURE
        return (Kind.CONFIG, Certainty.LIKELY) if _is_about(raised, _OF_A_CONFIG) else None
    if name == "ValueError" and re.match(r"could not convert string|invalid literal for int", message):
        about = Kind.CONFIG if _is_about(raised, _OF_A_CONFIG) else Kind.DATA if _is_about(raised, _OF_DATA) else None
        return (about, Certainty.LIKELY) if about else None
    if name == "ValueError" and re.search(
        r"\b(config|configuration|setting|hyper-?parameter|option|argument)\b", message, re.I
    ):
        return (Kind.CONFIG, Certainty.LIKELY) if _is_about(raised, _OF_A_CONFIG) else None
    return None


def _of_file(raised: Raised) -> Classification:
    path = found[1] if (found := _PATH.search(raised.message.split("\n")[0])) else raised.message
    if any(path_of.endswith("subprocess.py") for path_of, _, _ in raised.frames[-2:]):
        return Kind.CONFIG, Certainty.LIKELY  # a missing program
    if raised.short_name == "PermissionError" and any(_WRITES.search(code) for _, _, code in raised.frames[-3:]):
        return Kind.DISK, Certainty.LIKELY
    is_config = _CONFIG_FILE.search(path) or (path.endswith(".json") and _is_about(raised, _OF_A_CONFIG))
    return (Kind.CONFIG if is_config else Kind.DATA), Certainty.LIKELY


def _is_about(raised: Raised, pattern: re.Pattern[str]) -> bool:
    """Whether the innermost user frame matches: its function and its line of code."""
    own = [one for one in raised.frames if not is_library(one[0])] or list(raised.frames)
    return any(pattern.search(f"{function} {code}") for _, function, code in own[-1:])
