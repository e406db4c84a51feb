"""Commands that change a session: results, questions, refusals."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time

import pytest

import everturn
from tests.cli.conftest import Run
from tests.conversation import CUSTOMER


def texts(url: str, session_id: str = CUSTOMER) -> list[str]:
    with everturn.open(url) as store:
        return [message.text for message in store.get_history(session_id)]


def test_a_snapshot_a_rollback_and_an_undo(run: Run, url: str) -> None:
    now = texts(url)
    assert run("snapshot", url, CUSTOMER, "now").out.startswith("snapshot ")
    back = run("rollback", url, CUSTOMER, "before the new prompt", "--yes")
    assert back.out == "rolled back: 'customer-42' is at version 7; undo takes it back\n"
    assert texts(url) == ["You help.", "My order is 1234."]
    assert run("rollback", url, CUSTOMER, "now", "-y").code == 0
    assert texts(url) == now
    assert run("undo", url, CUSTOMER).code == 0
    assert texts(url) == ["You help.", "My order is 1234."]


def test_a_snapshot_is_found_by_the_beginning_of_its_id(run: Run, url: str) -> None:
    taken = json.loads(run("snapshots", url, CUSTOMER, "--json").out)
    assert run("rollback", url, CUSTOMER, taken["id"][:8], "--yes").code == 0


def test_without_a_terminal_nothing_is_assumed(run: Run, url: str) -> None:
    now = texts(url)
    for command in (["rollback", "before the new prompt"], ["trim", 1], ["clear"]):
        ran = run(command[0], url, CUSTOMER, *command[1:])
        assert ran.code == 2
        assert "--yes" in ran.err
    erased = run("erase", url, CUSTOMER)
    assert (erased.code, "--confirm" in erased.err) == (2, True)
    assert texts(url) == now


def test_a_key_makes_the_same_command_harmless(run: Run, url: str) -> None:
    first = json.loads(run("clear", url, CUSTOMER, "-y", "--key", "k", "--json").out)
    again = json.loads(run("clear", url, CUSTOMER, "-y", "--key", "k", "--json").out)
    assert (first["version"], first["replayed"]) == (6, False)
    assert (again["version"], again["replayed"]) == (6, True)


def test_undo_drops_later_turns_only_when_told(run: Run, url: str) -> None:
    ran = run("undo", url, CUSTOMER)
    assert ran.code == 2
    assert "in Bern" in ran.out  # what would go
    assert run("undo", url, CUSTOMER, "--yes").code == 0
    assert texts(url)[-1] == "What is your order number?"


def test_a_change_that_changes_nothing_says_so_and_does_not_offer_undo(run: Run, url: str) -> None:
    assert run("rollback", url, CUSTOMER, "before the new prompt", "--yes").out.startswith("rolled back")
    again = run("rollback", url, CUSTOMER, "before the new prompt", "--yes")
    assert again.out.startswith("nothing to do: ")
    assert "undo" not in again.out
    run("clear", url, CUSTOMER, "--yes")
    assert "undo" not in run("clear", url, CUSTOMER, "--yes").out


def test_two_snapshots_of_one_label_are_told_apart(run: Run, url: str) -> None:
    first = run("snapshot", url, CUSTOMER, "twice")
    second = run("snapshot", url, CUSTOMER, "twice")
    assert first.err == ""
    assert "2 snapshots have this label" in second.err
    latest, earlier = second.out.split()[1], first.out.split()[1]
    before = run("log", url, CUSTOMER).out
    told = run("rollback", url, CUSTOMER, "twice", "--yes")
    assert told.code == 2
    assert "2 snapshots match 'twice'" in told.err
    assert latest in told.err
    assert earlier in told.err
    assert run("log", url, CUSTOMER).out == before
    assert run("rollback", url, CUSTOMER, earlier, "--yes").code == 0


def test_a_rollback_to_a_version(run: Run, url: str) -> None:
    before = texts(url)
    ran = run("rollback", url, CUSTOMER, "--to", 1, "--yes")
    assert ran.out.startswith("rolled back: ")
    assert texts(url) == before[: len(texts(url))] != before
    assert "rollback to version 1" in run("log", url, CUSTOMER).out
    again = run("rollback", url, CUSTOMER, "--to", 1, "--yes")
    assert again.out.startswith("nothing to do: ")
    assert "undo" not in again.out
    assert run("undo", url, CUSTOMER).code == 0
    assert texts(url) == before
    assert "cannot be read at version 99" in run("rollback", url, CUSTOMER, "--to", 99, "--yes").err
    for wrong in ([], ["x", "--to", 1], ["--to", "now"]):
        assert run("rollback", url, CUSTOMER, *wrong, "--yes").code == 2


def test_show_and_log_tell_of_a_fold(run: Run, url: str) -> None:
    with everturn.open(url) as store:
        store.fold(CUSTOMER, lambda *_: "They gave their order.", max_messages=1)
    assert "They gave their order." in run("show", url, CUSTOMER).out
    assert "written by a fold" in run("show", url, CUSTOMER).out
    assert "fold: " in run("log", url, CUSTOMER).out


def test_fork_trim_clear_and_compact(run: Run, url: str) -> None:
    assert run("fork", url, CUSTOMER, "copy", "--at", "before the new prompt").code == 0
    assert texts(url, "copy") == ["You help.", "My order is 1234."]
    assert "exists already" in run("fork", url, CUSTOMER, "copy").err
    assert run("trim", url, "customer-43", 0, "--yes").out.startswith("nothing to do")  # the last turn stays
    assert run("trim", url, CUSTOMER, 0, "--yes").out.startswith("trimmed to ")
    assert run("clear", url, "copy", "--yes").code == 0
    assert texts(url, "copy") == []
    assert run("compact", url).out.startswith("reclaimed ")


def test_erase_wants_the_name_and_gives_a_receipt(run: Run, url: str) -> None:
    wrong = run("erase", url, CUSTOMER, "--confirm", "customer-43")
    assert (wrong.code, "nothing was erased" in wrong.err) == (2, True)
    receipt = json.loads(run("erase", url, CUSTOMER, "--confirm", CUSTOMER, "--json").out)
    assert (receipt["entries"], receipt["snapshots"], receipt["complete"]) == (9, 1, True)
    assert run("show", url, CUSTOMER).code == 2


TTLS = {"90": 90, "30min": 1800, "12h": 43200, "7d": 604800, "never": None}


@pytest.mark.parametrize(("text", "seconds"), TTLS.items())
def test_a_ttl_is_said_as_people_say_it(run: Run, url: str, text: str, seconds: float | None) -> None:
    assert run("set-ttl", url, CUSTOMER, text).code == 0
    with everturn.open(url) as store:
        assert store.info(CUSTOMER).ttl == seconds


def test_a_ttl_that_is_none_is_refused(run: Run, url: str) -> None:
    for text in ("soon", "5 weeks", "-1", ""):
        assert run("set-ttl", url, CUSTOMER, "--", text).code == 2


def in_a_terminal(answer: bytes, *words: str) -> tuple[int, str]:
    """Run the command on a terminal of its own, and type the answer once it asks."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "everturn.cli", *words])
    said = b""
    answered = False
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                chunk = os.read(terminal, 65536)
            except OSError:  # the other side closed
                break
            if not chunk:
                break
            said += chunk
        if not answered and (b"[y/N]" in said or b"to delete it" in said):
            os.write(terminal, answer)
            answered = True
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


def test_a_person_is_shown_what_leaves_and_can_say_no(url: str) -> None:
    now = texts(url)
    code, said = in_a_terminal(b"n\n", "rollback", url, CUSTOMER, "before the new prompt")
    assert code == 2
    assert "will leave the history: 5 entries" in said
    assert "in Bern" in said
    assert texts(url) == now


def test_a_person_can_say_yes(url: str) -> None:
    code, said = in_a_terminal(b"y\n", "rollback", url, CUSTOMER, "before the new prompt")
    assert (code, "rolled back" in said) == (0, True)
    assert texts(url) == ["You help.", "My order is 1234."]


def test_a_person_types_the_name_to_erase(url: str) -> None:
    code, _ = in_a_terminal(b"customer-4\n", "erase", url, CUSTOMER)
    assert code == 2
    assert texts(url)
    code, said = in_a_terminal(b"customer-42\n", "erase", url, CUSTOMER)
    assert (code, "erased 'customer-42': 9 entries" in said) == (0, True)


def test_verify_finds_damage_and_says_so_in_its_exit_code(run: Run, url: str) -> None:
    assert run("verify", url).out == "2 sessions, 11 entries: no damage\n"
    path = url.removeprefix("sqlite:///")
    statement = "UPDATE entries SET body = replace(body, '1234', '1235') WHERE session = 1 AND seq IN (1, 2)"
    damage = f"import apsw; apsw.Connection({path!r}).execute({statement!r})"
    subprocess.run([sys.executable, "-c", damage], check=True)
    ran = run("verify", url)
    assert ran.code == 1
    assert "'customer-42', entry 2" in ran.out
    assert 2 in {problem["seq"] for problem in json.loads(run("verify", url, "--json").out)["problems"]}
    shown = run("show", url, CUSTOMER)
    assert (shown.code, "entry 2" in shown.err) == (2, True)
