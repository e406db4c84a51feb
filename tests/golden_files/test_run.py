"""snapshot_db.run and kill_during: a function in a process of its own, wherever pytest imported it from."""

from __future__ import annotations

import pytest

from tests.golden_files.conftest import Project

HELPER = """
    import dataclasses, os, sqlite3, pytest
    from {near} import told

    class Trouble(Exception):
        def __init__(self, what, *, where):
            super().__init__(what, where)
            self.where = where
        def __reduce__(self):
            return _trouble, (self.args[0], self.where)

    def _trouble(what, where):
        return Trouble(what, where=where)

    @dataclasses.dataclass
    class Point:
        x: int

    class Shelf:
        @staticmethod
        def pid(point, *, more):
            assert isinstance(point, Point)
            return os.getpid(), Point(point.x + more), told()

    def trouble():
        raise Trouble("no", where="there")

    def touch(path):
        sqlite3.connect(path).close()

    def test_far(snapshot_db):
        touch(snapshot_db.path)
        pid, point, said = snapshot_db.run(Shelf.pid, Point(1), more=2)
        assert pid != os.getpid()
        assert point == Point(3)
        assert said == "told"
        with pytest.raises(Trouble, match="no") as caught:
            snapshot_db.run(trouble)
        assert type(caught.value) is Trouble
        assert caught.value.where == "there"
        assert "in trouble" in caught.value.__notes__[0]
"""


@pytest.mark.parametrize("mode", ["prepend", "append", "importlib"])
@pytest.mark.parametrize("is_package", [True, False])
def test_a_function_of_a_test_module_is_found_in_any_import_mode(project: Project, mode: str, is_package: bool) -> None:
    near = ".near" if is_package else "near"
    if is_package:
        project.write("checks/__init__.py", "")
        project.write("checks/deep/__init__.py", "")
    elif mode == "importlib":
        project.write(
            "conftest.py", "import sys, pathlib; sys.path.append(str(pathlib.Path(__file__).parent / 'checks/deep'))"
        )
    project.write("checks/deep/near.py", "def told(): return 'told'\n")
    project.write("checks/deep/test_far.py", HELPER.format(near=near))
    project.update(f"--import-mode={mode}").assert_outcomes(passed=1)
    project.pytest(f"--import-mode={mode}").assert_outcomes(passed=1)


def test_relative_imports_work_where_nothing_is_a_package(project: Project) -> None:
    """importlib mode gives such modules a dotted name that nobody can import."""
    project.write("checks/deep/near.py", "def told(): return 'told'\n")
    project.write("checks/deep/test_far.py", HELPER.format(near=".near"))
    project.update("--import-mode=importlib").assert_outcomes(passed=1)


def test_two_modules_of_one_name_are_not_mixed_up(project: Project) -> None:
    for folder in ("a", "b"):
        project.tests(
            f"""
            def who(): return {folder!r}

            def test_who(snapshot_db):
                make(snapshot_db.path)
                assert snapshot_db.run(who) == {folder!r}
            """,
            f"{folder}/test_it.py",
        )
    project.update("--import-mode=importlib").assert_outcomes(passed=2)


def test_a_fixture_of_conftest_may_run_a_function_of_conftest(project: Project) -> None:
    project.write(
        "conftest.py",
        """
        import sqlite3, pytest

        def fill(path):
            db = sqlite3.connect(path)
            db.execute("CREATE TABLE t (x)")
            db.commit()
            db.close()

        @pytest.fixture
        def filled(snapshot_db):
            snapshot_db.run(fill, snapshot_db.path)
            return snapshot_db.path
    """,
    )
    project.tests("""
        def test_filled(filled, snapshot_db):
            assert filled == snapshot_db.path
    """)
    project.update().assert_outcomes(passed=1)
    project.pytest().assert_outcomes(passed=1)


@pytest.mark.parametrize("function", ["lambda: 1", "inner"])
def test_a_function_that_nobody_else_can_find_is_refused_with_the_reason(project: Project, function: str) -> None:
    project.tests(f"""
        def test_local(snapshot_db):
            def inner(): pass
            make(snapshot_db.path)
            snapshot_db.run({function})
    """)
    result = project.update()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E *GoldenError: test_it.test_local.<locals>.* has to be a function or class at the top of a module*"]
    )


def test_what_cannot_come_back_says_so(project: Project) -> None:
    project.tests("""
        import threading

        def odd(): return threading.Lock()

        class Stubborn(Exception):
            def __init__(self, a, b): super().__init__("stubborn")

        def stubborn(): raise Stubborn(1, 2)

        def test_odd(snapshot_db):
            make(snapshot_db.path)
            with pytest.raises(RuntimeError, match="cannot be brought from the process that made it"):
                snapshot_db.run(odd)
            with pytest.raises(RuntimeError, match=r"Stubborn.*(?s:.)*in stubborn"):
                snapshot_db.run(stubborn)
    """)
    project.update().assert_outcomes(passed=1)


def test_a_process_that_dies_says_how(project: Project) -> None:
    project.tests("""
        import os, signal, sys

        def segfault(): os.kill(os.getpid(), signal.SIGSEGV)
        def leave(): os._exit(3)
        def quits(): sys.exit(4)

        def test_dead(snapshot_db):
            make(snapshot_db.path)
            with pytest.raises(RuntimeError, match="segfault: its process died of SIGSEGV before it was done"):
                snapshot_db.run(segfault)
            with pytest.raises(RuntimeError, match="leave: its process ended with exit code 3"):
                snapshot_db.run(leave)
            with pytest.raises(SystemExit):
                snapshot_db.run(quits)
    """)
    project.update().assert_outcomes(passed=1)


def test_a_function_that_hangs_is_killed_with_what_it_started(project: Project) -> None:
    project.tests("""
        import pathlib, subprocess, time

        def hang(path):
            child = subprocess.Popen(["sleep", "600"])
            path.with_suffix(".pid").write_text(str(child.pid))
            time.sleep(600)

        def is_alive(pid):
            stat = pathlib.Path(f"/proc/{pid}/stat")
            return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"

        def test_hang(snapshot_db, capfd):
            make(snapshot_db.path)
            snapshot_db.timeout = 3
            with pytest.raises(TimeoutError, match="hang was not done after 3 s, and was killed"):
                snapshot_db.run(hang, snapshot_db.path)
            assert "in hang" in capfd.readouterr().err
            pid = snapshot_db.path.with_suffix(".pid").read_text()
            if pathlib.Path("/proc/self/stat").exists():
                # A kill is sent, not awaited: a grandchild has no parent here that could wait for
                # it. It would sleep for ten minutes if it had not been killed.
                patience = time.monotonic() + 30
                while is_alive(pid):
                    assert time.monotonic() < patience
                    time.sleep(0.01)
    """)
    project.update().assert_outcomes(passed=1)


def test_several_processes_may_work_at_once(project: Project) -> None:
    project.tests("""
        from concurrent.futures import ThreadPoolExecutor

        def put(path, who):
            db = sqlite3.connect(path, timeout=60)
            for turn in range(5):
                with db:
                    db.execute("INSERT INTO messages (body) VALUES (?)", (f"{who}-{turn}",))
            db.close()

        @pytest.mark.snapshot_db(build=make)
        def test_many(snapshot_db):
            snapshot_db.mask("messages.id")  # who comes first is chance
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda who: snapshot_db.run(put, snapshot_db.path, who), "abc"))
    """)
    project.update().assert_outcomes(passed=1)
    project.pytest().assert_outcomes(passed=1)


def test_output_of_the_process_is_captured_with_the_tests_own(project: Project) -> None:
    project.tests("""
        def chat(): print("I am here")

        def test_chat(snapshot_db):
            make(snapshot_db.path)
            snapshot_db.run(chat)
            assert False
    """)
    project.pytest().stdout.fnmatch_lines(["*Captured stdout call*", "I am here"])


# --- kill -9 ---------------------------------------------------------------------------------------------------------

MOVE = """
    def connect(path, library):
        if library == "apsw":
            import apsw
            return apsw.Connection(str(path))
        return sqlite3.connect(path, isolation_level=None)

    def move(path, library="sqlite3"):
        db = connect(path, library)
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO messages (body) SELECT label FROM snapshots")
        db.execute("DELETE FROM snapshots")
        db.execute("COMMIT")
        db.close()
        return "moved"
"""


@pytest.mark.parametrize("library", ["sqlite3", "apsw"])
def test_a_process_is_killed_before_the_statement_that_was_named(project: Project, library: str) -> None:
    project.tests(
        MOVE
        + f"""
    @pytest.mark.snapshot_db(build=make)
    @pytest.mark.parametrize("at", [1, 2, 3, 4])
    def test_nothing_is_half_done(snapshot_db, at):
        killed_before = snapshot_db.kill_during(move, snapshot_db.path, {library!r}, at=at)
        assert killed_before.split()[0] == ["BEGIN", "INSERT", "DELETE", "COMMIT"][at - 1]

    @pytest.mark.snapshot_db(build=make)
    def test_all_is_done(snapshot_db):
        with pytest.raises(ValueError, match="at=5: move was done after 4 SQL statements, and was not killed"):
            snapshot_db.kill_during(move, snapshot_db.path, {library!r}, at=5)
    """
    )
    project.update().assert_outcomes(passed=5)
    folder = project.root / "snapshots/test_it"
    untouched = [(folder / f"test_nothing_is_half_done-{at}.sqlite").read_bytes() for at in (1, 2, 3, 4)]
    assert untouched == [(folder / "make.sqlite").read_bytes()] * 4
    assert (folder / "test_all_is_done.sqlite").read_bytes() != untouched[0]


def test_an_error_before_the_kill_is_raised_and_a_kill_that_cannot_be_is_told(project: Project) -> None:
    project.tests("""
        def fails(path):
            sqlite3.connect(path).execute("SELECT * FROM nowhere")

        def nothing(): pass

        @pytest.mark.snapshot_db(build=make)
        def test_fails(snapshot_db):
            with pytest.raises(sqlite3.OperationalError, match="no such table"):
                snapshot_db.kill_during(fails, snapshot_db.path, at=3)
            with pytest.raises(ValueError, match="at=0: the first statement is 1"):
                snapshot_db.kill_during(fails, snapshot_db.path, at=0)
            with pytest.raises(ValueError, match="done after 0 SQL statements.*those of sqlite3 and apsw are counted"):
                snapshot_db.kill_during(nothing, at=1)
    """)
    project.update().assert_outcomes(passed=1)


def test_statements_of_triggers_count(project: Project) -> None:
    project.tests(
        MOVE
        + """
    def insert(path, library):
        db = connect(path, library)
        db.execute("CREATE TRIGGER t AFTER INSERT ON messages BEGIN DELETE FROM snapshots; END")
        db.execute("INSERT INTO messages (body) VALUES ('x')")
        db.execute("SELECT 1")

    @pytest.mark.snapshot_db(build=make)
    @pytest.mark.parametrize("library", ["sqlite3", "apsw"])
    def test_trigger(snapshot_db, library):
        assert snapshot_db.kill_during(insert, snapshot_db.path, library, at=5) == "SELECT 1"
    """
    )
    project.update().assert_outcomes(passed=2)
