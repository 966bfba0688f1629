"""Changes a module of a framework once it is loaded, in a process that runs the job's own program."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from typing import Any, Callable, Dict, Optional

Change = Callable[[Any], None]


def change(changes: Dict[str, Change]) -> None:
    """Call a function with each of these modules, now if it is loaded, else when it will be."""
    later = {name: act for name, act in changes.items() if name not in sys.modules}
    for name in set(changes) - set(later):
        _apply(changes[name], sys.modules[name])
    if later:
        sys.meta_path.insert(0, _Finder(later))


def _apply(act: Change, module: Any) -> None:
    """Change the module. One of a release in which it looks different stays as it is, and the job's import succeeds."""
    try:
        act(module)
    except Exception as error:
        print(f"muster: {module.__name__} is left as it is: {error!r}", file=sys.stderr)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a module as Python does, and changes it once it is loaded."""

    def __init__(self, changes: Dict[str, Change]) -> None:
        self._changes = changes

    def find_spec(self, name: str, path: Any, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        act = self._changes.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if act else None
        if act and spec and spec.loader:
            load, then = spec.loader.exec_module, act
            spec.loader.exec_module = lambda module: (load(module), _apply(then, module))[0]  # type: ignore[method-assign]  # of this one loader
        return spec
