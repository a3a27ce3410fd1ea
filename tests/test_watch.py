"""The page while runs go on: served to this machine alone, robust against files that are being written."""

import contextlib
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from waiting import wait_until
from written_runs import Page, read_policy, write_experiment, write_run

from pcmlp.cli import main
from pcmlp.report import watch as module
from pcmlp.report.watch import WatchedFolder, start_server, watch


@contextmanager
def served(folder):
    with start_server(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def fetch(address, host=None):
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


def test_the_page_is_served_to_this_machine_alone(tmp_path):
    write_run(tmp_path / "run", 1)
    with served(tmp_path) as server:
        assert server.server_address[0] == "127.0.0.1"
        page = fetch(server.address)
        assert f'data-watch="{fetch(server.address + "version")}"' in page
        assert "somewhere, pcmlp" in page
        for path, host, code in (("../run/config.json", None, 404), ("", "elsewhere.example", 403)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                fetch(server.address + path, host)
            assert refused.value.code == code
            refused.value.close()


def refused(address, **changes):
    """The answer to a request that is refused."""
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(urllib.request.Request(address, **changes), timeout=30)
    return raised.value


def connect(server, sent=b""):
    connection = socket.create_connection(server.server_address)
    connection.settimeout(20)
    connection.sendall(sent)
    return connection


def test_every_answer_has_the_headers_that_restrict_it(tmp_path, monkeypatch):
    write_run(tmp_path / "run", 1)
    with served(tmp_path) as server:
        answers = [urllib.request.urlopen(server.address + path, timeout=30) for path in ("", "version")]
        answers.append(refused(server.address + "absent"))
        answers.append(refused(server.address, headers={"Host": "elsewhere.example"}))
        answers.append(refused(server.address, method="POST", data=b"x"))
        page = Page(answers[0].read().decode())
        monkeypatch.setattr(server.watched, "page", lambda: 1 / 0)
        answers.append(refused(server.address))
        monkeypatch.setattr(module, "_CONNECTIONS", 0)
        answers.append(refused(server.address))
    assert [answer.status for answer in answers] == [200, 200, 404, 403, 501, 500, 503]
    for answer in answers:
        headers = answer.headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert read_policy(headers["Content-Security-Policy"]) == page.policy | {"frame-ancestors": ["'none'"]}
        answer.close()


def test_there_are_not_too_many_connections(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CONNECTIONS", 2)
    with served(tmp_path) as server, contextlib.ExitStack() as opened:
        first, _ = [opened.enter_context(connect(server)) for _ in range(2)]
        with refused(server.address + "version") as answer:
            assert (answer.status, answer.read()) == (503, b"too many readers at the moment; try again later\n")
        first.close()
        wait_until(lambda: len(server._deadlines) < 2)
        assert fetch(server.address + "version")


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.0\r\nHost: 127"])
def test_a_connection_without_a_request_is_ended(sent, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.2)
    with served(tmp_path) as server, connect(server, sent) as idle:
        assert idle.recv(100) == b""
        wait_until(lambda: not server._deadlines)
    assert capfd.readouterr().err == ""


def test_a_reader_that_does_not_take_the_page_is_ended(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(WatchedFolder, "page", lambda _: 50_000_000 * "x")
    with served(tmp_path) as server:
        request = f"GET / HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode()
        with connect(server, request) as slow:
            assert slow.recv(15) == b"HTTP/1.0 200 OK"
            wait_until(lambda: not server._deadlines)
    assert capfd.readouterr().err == ""


def test_a_page_may_take_longer_to_make(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(WatchedFolder, "page", lambda _: time.sleep(0.6) or "the page")
    with served(tmp_path) as server:
        assert fetch(server.address) == "the page"


def test_a_reader_that_leaves_is_no_error(tmp_path, monkeypatch, capfd):
    asked, left = threading.Event(), threading.Event()

    def slow_page(_):
        asked.set()
        assert left.wait(20)
        return 5_000_000 * "x"

    monkeypatch.setattr(WatchedFolder, "page", slow_page)
    with served(tmp_path) as server:
        request = f"GET / HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode()
        with connect(server, request) as leaving:
            assert asked.wait(20)
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes with a reset
        left.set()
        wait_until(lambda: not server._deadlines)
        assert capfd.readouterr().err == ""
        monkeypatch.setattr(module.Handler, "do_GET", lambda _: 1 / 0)  # another error is shown
        with connect(server, request) as other:
            assert other.recv(100) == b""
        wait_until(lambda: not server._deadlines)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_only_runs_that_have_changed_are_read_again(tmp_path, monkeypatch):
    from pcmlp.report import reading

    read, logs = [], []
    load, records = module.load, reading.read
    monkeypatch.setattr(module, "load", lambda folder: read.append(folder.name) or load(folder))
    monkeypatch.setattr(reading, "read", lambda folder, most: logs.append(folder.parent.name) or records(folder))
    for name in ("one", "two"):
        write_run(tmp_path / name, 1, summary=False)
    watched = WatchedFolder(tmp_path)
    watched.page()
    assert read == ["one", "two"]
    assert sorted(set(logs)) == ["one", "two"]
    read.clear()
    logs.clear()
    with (tmp_path / "two/metrics.csv").open("a") as file:
        file.write("2,0,4321,0.2,0,1,0.5,1,,3\n2,4,4321,0.2,0,1,0.5,1,,3\n")
    page = watched.page()
    assert "4,321" in page
    assert "one (unfinished)" in page
    assert (read, set(logs)) == (["two"], {"two"})
    (tmp_path / "one/metrics.csv").unlink()  # a run that cannot be read is forgotten
    assert "one (unfinished)" not in watched.page()
    assert list(watched._runs) == [tmp_path / "two"]


def test_a_page_is_made_anew_when_files_change_and_only_then(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(module, "compose", lambda runs, **_: made.append(len(runs)) or f"page {len(made)}")
    watched = WatchedFolder(tmp_path)
    assert [watched.page(), watched.page()] == ["page 1", "page 1"]  # no run yet
    run = write_run(tmp_path / "run", 1, summary=False)
    assert [watched.page(), watched.page()] == ["page 2", "page 2"]
    before = watched.version()
    with (run / "metrics.csv").open("a") as file:
        file.write("2,0,10,0.2,0,1,0.5,1,,3\n")
    assert watched.version() != before
    assert watched.page() == "page 3"
    for name in ("table.csv", "experiment.json", "run/config.json"):
        before = watched.version()
        (tmp_path / name).write_text("{}\n\n")
        assert watched.version() != before
    assert made == [0, 1, 1]


def test_runs_that_an_experiment_has_from_another_are_watched(tmp_path):
    run = write_run(tmp_path / "other/somewhere/pcmlp", 1, summary=False)
    write_experiment(tmp_path / "it", "other/somewhere/pcmlp")
    watched = WatchedFolder(tmp_path / "it")
    assert "pcmlp (unfinished)" in watched.page()
    before = watched.version()
    with (run / "metrics.csv").open("a") as file:
        file.write("2,0,10,0.2,0,1,0.5,1,,3\n")
    assert watched.version() != before
    (tmp_path / "it/experiment.json").write_text('{"title": ')  # being written
    assert "experiment.json: cannot be read" in watched.page()


def test_whatever_goes_wrong_is_an_answer(tmp_path, monkeypatch):
    def broken(_):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(WatchedFolder, "page", broken)
    with served(tmp_path) as server:
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch(server.address)
        assert refused.value.code == 500
        assert "the page cannot be made (RuntimeError: two lines)" in refused.value.read().decode()
        refused.value.close()
        assert fetch(server.address + "version")  # it goes on


def test_no_port_is_port_80(tmp_path):
    with served(tmp_path) as server:
        server.server_port = 80
        address = f"http://127.0.0.1:{server.server_address[1]}/version"
        assert fetch(address, "localhost")
        server.server_port = 8642
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch(address, "localhost")
        assert refused.value.code == 403
        refused.value.close()


def test_what_is_being_written_is_left_out(tmp_path):
    run = write_run(tmp_path / "run", 2, summary=False)
    whole = (run / "metrics.csv").read_text()
    (run / "metrics.csv").write_text(whole + "3,0,15,0.3,0.0,1.0,0.1,3.0,,4.")  # all columns, but not all digits
    page = WatchedFolder(tmp_path).page()
    assert "took 12 env steps" in page or "(median 12 env steps)" in page
    assert "somewhere, pcmlp (unfinished)" in page
    (run / "metrics.csv").write_text(whole.splitlines()[0][:20])
    assert "Left out for now" in WatchedFolder(tmp_path).page()
    (run / "metrics.csv").unlink()
    assert "has written a row yet" in WatchedFolder(tmp_path).page()


def test_ctrl_c_ends_it(tmp_path, monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Server, "serve_forever", interrupted)
    watch(tmp_path, 0)
    address, ended = capsys.readouterr().out.splitlines()
    assert address.startswith("http://127.0.0.1:")
    assert ended == "ended"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("watch {folder}/absent", "is not a folder"),
        ("watch {folder} --port none", "--port none"),
        ("watch {folder} --port 70000", "--port 70000"),
        ("watch {folder} --port {taken}", "Address already in use"),
        ("report {folder}", "no run in it"),
    ],
)
def test_bad_input_is_one_line_and_code_2(command, named, tmp_path, capsys, record_property):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        words = command.format(folder=tmp_path, taken=held.getsockname()[1]).split()
        assert main(words) == 2
    shown = capsys.readouterr()
    line = shown.err.removeprefix("pcmlp: ").strip()
    said = line.replace(str(tmp_path), "DIR").replace(words[-1], "8642" if "taken" in command else words[-1])
    record_property("bad input", (command.format(folder="DIR", taken="8642"), said))
    assert shown.out == ""
    assert shown.err.startswith("pcmlp: ")
    assert shown.err.count("\n") == 1
    assert named in shown.err
    assert list(tmp_path.iterdir()) == []
