"""Pickles functions and classes by module and file, so that another process finds them in any import mode of pytest.

Runs in both processes. pickle alone uses the module name, and a test module often cannot be imported by its name.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import pickle
import sys
from operator import attrgetter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from everturn.testing.golden.errors import GoldenError


def dumps(value: object) -> bytes:
    """Pickle, with functions and classes by module and file. Raises GoldenError for a lambda or a nested function."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def loads(octets: bytes) -> Any:
    return pickle.loads(octets)  # noqa: S301 - from the process that started this one, or that this one started


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, FunctionType | type):
            return NotImplemented
        module = sys.modules.get(obj.__module__)
        file = getattr(module, "__file__", None)
        if file is None or obj.__module__ == __name__:
            return NotImplemented  # built in, or ours: its name is enough
        if _find(module, obj.__qualname__) is not obj:
            raise GoldenError(
                f"{obj.__module__}.{obj.__qualname__} cannot be found by another process: it has to be a function or "
                "class at the top of a module, not a lambda, and not one made inside another function"
            )
        return load, (obj.__module__, file, obj.__qualname__)


def load(module: str, file: str, name: str) -> Any:
    """Load the function or class of that name from its module, imported from `file` if necessary."""
    return attrgetter(name)(_module(module, file))


def _find(module: ModuleType | None, name: str) -> object:
    try:
        return attrgetter(name)(module)
    except AttributeError:
        return None


def _module(name: str, file: str) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None and _is_from(getattr(known, "__file__", None), file):
        return known
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a parent that is not there, or is no package
        spec = None
    if spec is not None and _is_from(spec.origin, file):
        return importlib.import_module(name)
    return _from_file(name, Path(file))


def _is_from(origin: str | None, file: str) -> bool:
    return origin is not None and Path(origin).exists() and Path(origin).samefile(file)


def _from_file(name: str, file: Path) -> ModuleType:
    parent = name.rpartition(".")[0]
    if parent:
        _package(parent, file.parent if file.name != "__init__.py" else file.parent.parent)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python module")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _package(name: str, folder: Path) -> None:
    """Make a package of that name, so that relative imports of its modules work."""
    if name in sys.modules:
        return
    init = folder / "__init__.py"
    if init.exists():
        _from_file(name, init)
        return
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
