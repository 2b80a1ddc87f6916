from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any

import salvor
from salvor import Client, Event, SalvorError, aio

from .world import World

HERE = Path(__file__).resolve().parent.parent


class Synchronizing(World):
    def test_rows_go_both_ways(self) -> None:
        configuration = self.device()
        self.write_at_server("INSERT INTO site (id, name) VALUES ('s1', 'Hafenküche')")
        with Client(str(configuration)) as client:
            self.assertEqual(client.state.name, "idle")
            rows = self.rows(configuration)
            with rows:
                rows.execute("INSERT INTO site (id, name) VALUES ('s2', 'Mill')")
            self.assertEqual([(one.operation, one.key) for one in client.queue()], [("insert", ("s2",))])
            report = client.synchronize()
            self.assertEqual((report.outcome, report.uploaded, report.upserts), ("synchronized", 1, 2))
            self.assertEqual(client.state.name, "connected")
            self.assertEqual(rows.execute("SELECT id FROM site ORDER BY id").fetchall(), [("s1",), ("s2",)])
            self.assertEqual(self.server_rows().execute("SELECT count(*) FROM site").fetchone(), (2,))
            self.assertEqual(client.status().principal, "anna")

    def test_a_configuration_needs_no_file(self) -> None:
        configuration: dict[str, Any] = {
            "schema": str(self.folder / "schema.json5"),
            "client": {
                "storage": {"module": "sqlite", "path": "own.db"}, "transport": {"module": "http", "url": self.url},
                "credentials": {"principal": "bert"},
            },
        }
        with Client(configuration, directory=str(self.folder)) as client:
            self.assertEqual(len(client.register()), 32)
            self.assertEqual(client.synchronize(within=60).outcome, "synchronized")
        self.assertTrue((self.folder / "own.db").exists())

    def test_a_callback_sees_what_comes_while_it_is_watched(self) -> None:
        configuration = self.device()
        events: list[Event] = []
        with Client(str(configuration)) as client:
            client.subscribe(events.append)
            client.watch()
            self.wait_for(lambda: [one for one in events if one.name == "listening"])
            self.write_at_server("INSERT INTO site (id, name) VALUES ('s1', 'Harbour')")
            found = self.wait_for(
                lambda: [c for one in events if one.name == "rows-changed" for c in one.changes if c.keys == (("s1",),)])
            self.assertEqual(found[0].table, "site")
            client.unwatch()

    def test_asyncio(self) -> None:
        configuration = self.device()

        async def run() -> list[str]:
            names: list[str] = []
            async with aio.Client(str(configuration)) as client:
                reports = await asyncio.gather(*(client.synchronize() for _ in range(5)))
                self.assertEqual({one.outcome for one in reports}, {"synchronized"})
                async for event in client.watch():
                    names.append(event.name)
                    if event.name == "listening":
                        self.write_at_server("INSERT INTO site (id, name) VALUES ('s9', 'Pier')")
                    if any(change.keys == (("s9",),) for change in event.changes):
                        break
                self.assertEqual(await client.errors(), [])
            return names

        self.assertIn("rows-changed", asyncio.run(run()))


class SeveralUsers(World):
    def test_what_one_user_has_not_sent_stays_his(self) -> None:
        configuration = self.device()
        bert = configuration.parent / "bert.db"
        with Client(str(configuration)) as client:
            client.synchronize()
            anna = self.rows(configuration)
            with anna:
                anna.execute("INSERT INTO site (id, name) VALUES ('a1', 'of Anna')")
            self.assertEqual(client.switch(str(bert), principal="bert"), "bert")
            self.assertEqual((client.status().principal, list(client.queue())), ("bert", []))
            self.assertEqual(client.synchronize().uploaded, 0)
            self.assertEqual(self.server_rows().execute("SELECT count(*) FROM site").fetchone(), (0,))
            self.assertTrue(bert.exists())
            # Her file is no place for him.
            with self.assertRaises(SalvorError) as raised:
                client.switch(str(configuration.parent / "field.db"), principal="bert")
            self.assertEqual(raised.exception.name, "remote-of-another-principal")
            self.assertEqual(client.synchronize().outcome, "synchronized")
            client.switch(str(configuration.parent / "field.db"), principal="anna")
            self.assertEqual(client.synchronize().uploaded, 1)
            self.assertEqual(self.server_rows().execute("SELECT id FROM site").fetchall(), [("a1",)])

    def test_a_program_that_ends_without_closing_ends_well(self) -> None:
        program = (
            "import sys, sqlite3\nfrom salvor import Client\nclient = Client(sys.argv[1])\nclient.subscribe(lambda event: None)\n"
            "client.watch()\nsite = sqlite3.connect(sys.argv[2])\n"
            "for number in range(5):\n    with site: site.execute('INSERT INTO site (id, name) VALUES (lower(hex(randomblob(8))), 1)')\n")
        configuration = self.device()
        for number in range(5):
            done = subprocess.run(
                [sys.executable, "-B", "-c", program, str(configuration), str(configuration.parent / "field.db")],
                capture_output=True, text=True, cwd=HERE)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_switch_without_a_user_is_refused(self) -> None:
        with Client(str(self.device())) as client:
            with self.assertRaisesRegex(SalvorError, "token"):
                client.switch("nobody.db")
            with self.assertRaisesRegex(SalvorError, "no option"):
                client._call("switch", {"file": "x"})
            self.assertFalse(os.path.exists("nobody.db"))

    def test_asyncio_switches(self) -> None:
        configuration = self.device()

        async def run() -> str:
            async with aio.Client(str(configuration)) as client:
                name = await client.switch(str(configuration.parent / "bert.db"), principal="bert")
                await client.synchronize()
                return name

        self.assertEqual(asyncio.run(run()), "bert")


class TheArchive(World):
    def test_what_was_refused_is_shown_and_taken_back_or_sent_again(self) -> None:
        configuration = self.device()
        with Client(str(configuration)) as client:
            client.synchronize()
            rows = self.rows(configuration)
            with rows:
                rows.execute("INSERT INTO site (id, name) VALUES ('s1', 'Here')")
                rows.execute("INSERT INTO site (id, name) VALUES ('s2', 'There')")
            # The server's own application has the key already, in a row that nobody was told of.
            self.stop()
            self.write_at_server("CREATE TRIGGER full BEFORE INSERT ON site WHEN new.id LIKE 's%' BEGIN SELECT RAISE(ABORT, 'full'); END")
            self.start()
            report = client.synchronize()
            self.assertEqual(report.refused, 2)
            first, second = client.errors()
            self.assertEqual((first.table, first.key, first.state), ("site", ("s1",), "refused"))
            self.assertTrue(first.message)
            self.write_at_server("DROP TRIGGER full")
            self.assertEqual([one["outcome"] for one in client.retry(first.id)], ["queued"])
            self.assertEqual(client.synchronize().uploaded, 1)
            planned = client.delete(second.id, plan=True)
            self.assertEqual([one["id"] for one in planned["requests"]], [second.id])
            self.assertEqual(len(list(client.errors())), 1)
            client.delete(all=True)
            self.assertEqual(list(client.errors()), [])
            self.assertEqual(rows.execute("SELECT id FROM site").fetchall(), [("s1",)])


class Recovering(World):
    def _restore_the_server(self, client: Client, rows: sqlite3.Connection) -> None:
        """Its database is the one of between two uploads of the device; one change waits on the device."""
        with rows:
            rows.execute("INSERT INTO site (id, name) VALUES ('first', 'First')")
        client.synchronize()
        self.stop()
        shutil.copy(self.folder / "consolidated.db", self.folder / "old.db")
        self.start()
        self.write_at_server("INSERT INTO site (id, name) VALUES ('lost', 'Lost')")
        with rows:
            rows.execute("INSERT INTO site (id, name) VALUES ('sent', 'Sent')")
        client.synchronize()
        with rows:
            rows.execute("INSERT INTO site (id, name) VALUES ('mine', 'Mine')")
        self.stop()
        for name in self.folder.glob("consolidated.db*"):
            name.unlink()
        shutil.copy(self.folder / "old.db", self.folder / "consolidated.db")
        self.start()

    def test_a_restored_server_is_recovered_from_and_nothing_unsent_is_lost(self) -> None:
        configuration = self.device(recovery="{ strategy: \"manual\" }")
        with Client(str(configuration)) as client:
            rows = self.rows(configuration)
            self._restore_the_server(client, rows)
            with self.assertRaises(SalvorError) as raised:
                client.synchronize()
            self.assertEqual(raised.exception.report and raised.exception.report.outcome, "recovery-required")
            self.assertEqual(client.state.name, "recovery-required")
            plan = client.recovery_plan("recover-unsynced-changes")
            self.assertEqual(plan.strategy, "recover-unsynced-changes")
            status = client.status()
            self.assertEqual(status.recovery_state, "required")
            report = client.recover("recover-unsynced-changes", token=status.recovery_token)
            self.assertEqual(report.outcome, "recovered")
            self.assertEqual([one.strategy for one in client.recoveries()], ["recover-unsynced-changes"])
            self.assertIn(("mine",), self.server_rows().execute("SELECT id FROM site").fetchall())


class BadInput(World):
    def test_a_wrong_configuration_names_its_mistake(self) -> None:
        with self.assertRaises(SalvorError) as raised:
            Client({"schema": {}, "client": {"storge": {}}})
        self.assertEqual(raised.exception.name, "configuration")
        self.assertIn("storge", raised.exception.message)
        self.assertTrue(raised.exception.way_on)

    def test_a_server_that_is_away_is_an_error_that_can_be_tried_again(self) -> None:
        configuration = self.device()
        self.stop()
        with Client(str(configuration)) as client:
            with self.assertRaises(SalvorError) as raised:
                client.synchronize()
            self.assertTrue(raised.exception.is_retryable)
            self.assertEqual(client.state.name, "offline")

    def test_a_closed_client_says_so_and_closes_again(self) -> None:
        client = Client(str(self.device()))
        client.close()
        client.close()
        with self.assertRaisesRegex(SalvorError, "closed"):
            client.synchronize()

    def test_a_callback_may_raise_and_may_call_back(self) -> None:
        configuration = self.device()
        seen: list[str] = []
        done = threading.Event()

        def listener(event: Event) -> None:
            if event.name == "synchronized":
                seen.append(client.status().principal)
                done.set()
                raise ValueError("of the callback")

        with Client(str(configuration)) as client:
            subscription = client.subscribe(listener)
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                client.synchronize()
                self.assertTrue(done.wait(60))
                subscription.cancel()
            self.assertIn("of the callback", said.getvalue())
            client.synchronize()
            self.assertEqual(seen, ["anna"])

    def test_ten_threads_and_a_close_among_them(self) -> None:
        client = Client(str(self.device()))
        outcomes: list[str] = []

        def work() -> None:
            for _ in range(5):
                try:
                    outcomes.append(str(client.synchronize().outcome))
                except SalvorError as error:
                    outcomes.append(error.name)

        threads = [threading.Thread(target=work) for _ in range(10)]
        for thread in threads:
            thread.start()
        self.wait_for(lambda: len(outcomes) > 5)
        client.close()
        for thread in threads:
            thread.join()
        self.assertEqual(len(outcomes), 50)
        self.assertLessEqual(set(outcomes), {"synchronized", "cancelled", "usage"})

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_a_forked_process_is_told_so(self) -> None:
        with Client(str(self.device())) as client:
            child = os.fork()
            if child == 0:
                try:
                    client.synchronize()
                except SalvorError as error:
                    os._exit(0 if "forked" in error.message else 2)
                os._exit(3)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertEqual(client.synchronize().outcome, "synchronized")


class Applications(World):
    def _field(self, configuration: Path, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-B", str(HERE / "field.py"), str(configuration), *arguments], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_application_on_sqlite3(self) -> None:
        configuration = self.device()
        self.assertEqual(self._field(configuration, "add", "s1", "Harbour"), "synchronized: 1 sent, 1 came, 0 went, 0 refused\n")
        self.write_at_server("INSERT INTO site (id, name) VALUES ('s2', 'Mill')")
        self.assertIn("changed site: s2", self._field(configuration, "sync"))
        self.assertEqual(self._field(configuration, "list"), "s1 Harbour\ns2 Mill\n")
        self.assertEqual(self._field(configuration, "errors"), "")
        self.assertEqual(self._field(configuration, "recover"), "plan: nothing to recover from, 0 requests kept\n")

    def test_an_application_on_sqlalchemy(self) -> None:
        try:
            import sqlalchemy
            from sqlalchemy import orm
        except ImportError:
            self.skipTest("SQLAlchemy is not here (Debian: python3-sqlalchemy)")
        base = orm.declarative_base()

        class Site(base):  # type: ignore[misc, valid-type]
            __tablename__ = "site"
            id = sqlalchemy.Column(sqlalchemy.Text, primary_key=True)
            name = sqlalchemy.Column(sqlalchemy.Text)
            seats = sqlalchemy.Column(sqlalchemy.Integer, default=0)

        configuration = self.device()
        with Client(str(configuration)) as client:
            engine = sqlalchemy.create_engine(
                f"sqlite:///{configuration.parent / 'field.db'}", connect_args={"timeout": 30})
            stale: list[str] = []
            client.subscribe(lambda event: stale.extend(change.table for change in event.changes))
            with orm.Session(engine) as session:
                session.add(Site(id="s1", name="Harbour"))
                session.commit()
            self.assertEqual(client.synchronize().uploaded, 1)
            self.write_at_server("UPDATE site SET seats = 12 WHERE id = 's1'")
            client.synchronize()
            self.wait_for(lambda: "site" in stale)
            with orm.Session(engine) as session:
                self.assertEqual(session.get(Site, "s1").seats, 12)
            engine.dispose()


class Installing(unittest.TestCase):
    def test_pip_installs_it_without_a_network(self) -> None:
        for module in ("setuptools", "pip", "wheel"):
            if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode:
                self.skipTest(f"{module} is not here (Debian: python3-{module})")
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(HERE, Path(folder) / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps",
                 "--target", str(Path(folder) / "site"), str(Path(folder) / "source")], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue((Path(folder) / "site" / "salvor" / "py.typed").exists())
            asked = subprocess.run(
                [sys.executable, "-c", "import salvor; print(salvor.__file__)"], capture_output=True, text=True,
                cwd=folder, env={**os.environ, "PYTHONPATH": str(Path(folder) / "site")})
            self.assertIn(str(Path(folder) / "site"), asked.stdout, asked.stderr)


if __name__ == "__main__":
    unittest.main()
