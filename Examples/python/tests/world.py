"""A server and devices in a directory of their own."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

SCHEMA = """{
  version: 1,
  groups: { visits: { serverInitiated: true } },
  tables: {
    severity: { maintained: "server", group: "visits", primaryKey: "id", columns: { id: "integer", name: "text" } },
    site: { maintained: "dual", group: "visits", primaryKey: "id",
            columns: { id: "text", name: "text", seats: "integer = 0" } },
  },
}"""


class World(unittest.TestCase):
    """Needs `salvor`, by SALVOR or on the PATH."""

    def setUp(self) -> None:
        # A name that must bear spaces and letters beyond ASCII.
        self.folder = Path(tempfile.mkdtemp(prefix="salvor python ü "))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "schema.json5").write_text(SCHEMA, encoding="utf-8")
        self._configure(0)
        self._server: subprocess.Popen[str]
        self.start()
        self.addCleanup(self.stop)

    def _configure(self, port: int) -> None:
        (self.folder / "salvor.json5").write_text(
            """{ schema: "schema.json5", server: { storage: { module: "sqlite", path: "consolidated.db" },
                 listen: { module: "http", address: "127.0.0.1", port: %d }, authentication: { module: "none" } } }""" % port,
            encoding="utf-8")

    def start(self) -> None:
        self._server = subprocess.Popen(
            [os.environ.get("SALVOR", "salvor"), "serve"], cwd=self.folder, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        assert self._server.stdout
        for line in self._server.stdout:
            found = re.match(r"listening on (http://.*:(\d+))", line)
            if found:
                self.url = found.group(1)
                # It comes back where the devices look for it.
                self._configure(int(found.group(2)))
                return
        self.fail("the server did not start")

    def stop(self) -> None:
        if self._server.poll() is None:
            self._server.terminate()
            self._server.wait()
        assert self._server.stdout
        self._server.stdout.close()

    def device(self, name: str = "anna", **more: Any) -> Path:
        """A configuration file in a folder of its own."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        recovery = more.get("recovery", "{}")
        (folder / "salvor.json5").write_text(
            """{ schema: "../schema.json5", client: { storage: { module: "sqlite", path: "field.db" },
                 transport: { module: "http", url: "%s" }, credentials: { principal: "%s" }, recovery: %s } }"""
            % (self.url, name, recovery), encoding="utf-8")
        return folder / "salvor.json5"

    def rows(self, configuration: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(configuration.parent / "field.db", timeout=30)
        self.addCleanup(connection.close)
        return connection

    def server_rows(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.folder / "consolidated.db", timeout=30)
        self.addCleanup(connection.close)
        return connection

    def write_at_server(self, statement: str, *values: Any) -> None:
        connection = self.server_rows()
        with connection:
            connection.execute(statement, values)

    def wait_for(self, what: Any, seconds: float = 60) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = what()
            if found:
                return found
            time.sleep(0.02)
        return self.fail("it did not come")
