"""The functions of salvor.h. Nothing else of this package knows of ctypes."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any, Callable, Optional

from .reports import SalvorError

ABI_VERSION = 1
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)

_result = ctypes.POINTER(ctypes.c_void_p)
_number = ctypes.c_uint64
_text = ctypes.c_char_p

# What stands between the client and the result.
_functions: dict[str, list[Any]] = {
    "close": [], "register": [], "cancel": [], "unwatch": [], "state": [], "status": [], "capture_pause": [],
    "capture_resume": [], "set_token": [_text], "switch": [_text], "synchronize": [_text], "watch": [_text], "queue": [_text],
    "errors": [_text], "request": [_text], "withdraw": [_text], "errors_delete": [_text], "errors_retry": [_text],
    "errors_reapply": [_text], "recovery_plan": [_text], "recover": [_text], "recoveries": [_text],
    "unsubscribe": [_number], "subscribe": [CALLBACK, ctypes.c_void_p, ctypes.POINTER(_number)],
}

_lock = threading.Lock()
_loaded: Optional["Library"] = None


class Library:
    """libsalvor, loaded once for the process."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._c = ctypes.CDLL(path)
        self._c.salvor_abi_version.restype = ctypes.c_int32
        found = self._c.salvor_abi_version()
        if found != ABI_VERSION:
            raise ImportError(f"{path} has the ABI {found}, and this package is for {ABI_VERSION}. Install those of one release.")
        self._c.salvor_string_free.argtypes = [ctypes.c_void_p]
        self._c.salvor_string_free.restype = None
        self._c.salvor_version.argtypes = [_result]
        self._c.salvor_open.argtypes = [_text, ctypes.POINTER(_number), _result]
        for name, between in _functions.items():
            getattr(self._c, "salvor_" + name).argtypes = [_number, *between, _result]
        for name in ["version", "open", *_functions]:
            getattr(self._c, "salvor_" + name).restype = ctypes.c_int32

    def version(self) -> dict[str, Any]:
        place = ctypes.c_void_p()
        return self._take(self._c.salvor_version(ctypes.byref(place)), place)

    def open(self, options: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        client, place = _number(), ctypes.c_void_p()
        code = self._c.salvor_open(_json(options), ctypes.byref(client), ctypes.byref(place))
        return client.value, self._take(code, place)

    def call(self, name: str, client: int, *arguments: Any) -> Any:
        """A function by its name without `salvor_`; dictionaries go as JSON."""
        place = ctypes.c_void_p()
        given = [_json(one) if isinstance(one, dict) else one for one in arguments]
        code = getattr(self._c, "salvor_" + name)(client, *given, ctypes.byref(place))
        return self._take(code, place)

    def subscribe(self, client: int, callback: Any) -> int:
        number = _number()
        self.call("subscribe", client, callback, None, ctypes.byref(number))
        return number.value

    def _take(self, code: int, place: ctypes.c_void_p) -> Any:
        if not place.value:
            raise SalvorError({"code": code, "name": "usage", "message": "libsalvor cannot be used in a forked process: open the client in the process that uses it (start method \"spawn\")."})
        try:
            value = json.loads(ctypes.string_at(place.value))
        finally:
            self._c.salvor_string_free(place)
        if code != 0:
            raise SalvorError(value)
        return value


def _json(options: dict[str, Any]) -> bytes:
    return json.dumps({name: value for name, value in options.items() if value is not None}).encode()


def load() -> Library:
    """By SALVOR_LIBRARY, beside this file, or where the system has its libraries."""
    global _loaded
    with _lock:
        if _loaded is None:
            library = Library(_find())
            _check_sqlite(library)
            _loaded = library
        return _loaded


def _find() -> str:
    named = os.environ.get("SALVOR_LIBRARY")
    if named:
        return named
    for name in ("libsalvor.so.1", "libsalvor.so", "libsalvor.dylib"):
        beside = Path(__file__).with_name(name)
        if beside.exists():
            return str(beside)
    found = ctypes.util.find_library("salvor")
    if found is None:
        raise ImportError("libsalvor is not here: name it by SALVOR_LIBRARY, or install it (Tools/libsalvor makes it).")
    return found


def _check_sqlite(library: Library) -> None:
    """Two copies of SQLite in one process take each other's locks away, which can damage a file."""
    connection = sqlite3.connect(":memory:")
    try:
        own = connection.execute("SELECT sqlite_version()").fetchone()[0]
    finally:
        connection.close()
    other = library.version()["libraries"].get("SQLite", own)
    copies = set()
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            copies = {line.split()[-1] for line in maps if "/libsqlite3." in line}
    except OSError:
        pass  # Not Linux: the versions must do.
    if own.split()[0] != other.split()[0] or len(copies) > 1:
        raise ImportError(
            f"This Python has a SQLite of its own ({own}) beside that of libsalvor ({other}): two in one process can damage a file. "
            "Use a Python whose sqlite3 uses the system's libsqlite3, or synchronize in another process (salvor sync --watch).")


Callback = Callable[[dict[str, Any]], None]
