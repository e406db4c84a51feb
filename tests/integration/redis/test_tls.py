"""TLS, with a CA made for the test: in front of a real server, and in one that can by itself where there is one."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import trustme

import everturn
from everturn import InvalidInput, MemoryStoreBackendError
from everturn.backends.redis.url import login_of, parse
from everturn.testing.faults.proxy import FaultProxy
from everturn.testing.servers import ServerError, ValkeyServer, free_port, valkey_server
from tests.integration.writers import FACES, Ledger, Writers, every_kind, turns, without_keys
from tests.store.speech import say, user, words

CA = trustme.CA()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CA, another one, a certificate of the server's and one of ours."""
    folder = tmp_path_factory.mktemp("tls")
    CA.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    for name in ("127.0.0.1", "me@example.org"):
        CA.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    return folder


def front(server: ValkeyServer, name: str = "127.0.0.1", **certificate: Any) -> FaultProxy:
    """Speaks TLS under a name, in front of a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert(name, **certificate).configure_cert(context)
    return FaultProxy(server.url, tls=context)


def use(face: str, url: str, **options: Any) -> None:
    async def awaited() -> None:
        async with await everturn.open_async(url, timeout=5, **options) as store:
            await store.add_messages("a", [user("1")])
            assert [message.content for message in await store.get_history("a")] == ["1"]
            await store.erase("a")

    if face == "tasks":
        return asyncio.run(awaited())
    with everturn.open(url, timeout=5, **options) as store:
        say(store, "a", "1")
        assert words(store, "a") == ["1"]
        store.erase("a")
    return None


@pytest.fixture
def secure(server: ValkeyServer) -> Iterator[str]:
    """Where TLS is spoken."""
    with front(server) as proxy:
        yield proxy.url


def test_a_server_with_tls_of_its_own_serves(files: Path) -> None:
    pair, port = str(files / "127.0.0.1.pem"), free_port()
    settings = {"tls_cert_file": pair, "tls_key_file": pair, "tls_ca_cert_file": str(files / "ca.pem")}
    with ExitStack() as stack:
        try:
            stack.enter_context(valkey_server(appendonly=True, tls_port=port, tls_auth_clients="no", **settings))
        except ServerError as exc:
            pytest.skip(f"this server has no TLS: {str(exc).splitlines()[-1]}")
        for face in FACES:
            use(face, f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={files / 'ca.pem'}")
            with pytest.raises(MemoryStoreBackendError, match="not trusted"):
                use(face, f"rediss://127.0.0.1:{port}/0")


@pytest.mark.parametrize("face", FACES)
def test_a_trusted_server_serves(secure: str, files: Path, face: str) -> None:
    use(face, f"{secure}?ssl_ca_certs={files / 'ca.pem'}")
    use(face, secure, ssl_cert_reqs="none")  # whoever it is


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("ca", ["other.pem", None])
def test_a_server_that_nobody_vouches_for_is_refused(secure: str, files: Path, face: str, ca: str | None) -> None:
    options = {"ssl_ca_certs": str(files / ca)} if ca else {}
    with pytest.raises(MemoryStoreBackendError, match=r"certificate is not trusted; .*ssl_ca_certs") as caught:
        use(face, secure, **options)
    assert (caught.value.outcome, caught.value.transient) == ("not_written", False)


@pytest.mark.parametrize("face", FACES)
def test_a_certificate_of_another_name_is_refused(server: ValkeyServer, files: Path, face: str) -> None:
    with front(server, "elsewhere.example") as proxy:
        url = f"{proxy.url}?ssl_ca_certs={files / 'ca.pem'}"
        with pytest.raises(MemoryStoreBackendError, match="certificate is not for this address") as caught:
            use(face, url)
        assert not caught.value.transient
        use(face, url, ssl_check_hostname="off")
        with pytest.raises(MemoryStoreBackendError, match="certificate is not for this name"):
            use(face, url.replace("127.0.0.1", "localhost"))


def test_a_certificate_that_has_expired_is_refused(server: ValkeyServer, files: Path) -> None:
    with (
        front(server, not_after=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)) as proxy,
        pytest.raises(MemoryStoreBackendError, match=r"not trusted.*certificate has expired"),
    ):
        use("threads", proxy.url, ssl_ca_certs=str(files / "ca.pem"))


@pytest.mark.parametrize("face", FACES)
def test_a_server_may_want_a_certificate_of_ours(server: ValkeyServer, files: Path, face: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    CA.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    mine = str(files / "me@example.org.pem")
    with FaultProxy(server.url, tls=context) as proxy:
        use(face, proxy.url, ssl_ca_certs=str(files / "ca.pem"), ssl_certfile=mine, ssl_keyfile=mine)
        with (
            pytest.raises(MemoryStoreBackendError) as caught,
            everturn.open(proxy.url, timeout=0.5, ssl_ca_certs=str(files / "ca.pem")),
        ):
            pass
        assert caught.value.outcome == "not_written"


def test_plain_talk_to_a_server_that_wants_tls_says_what_may_be_wrong(server: ValkeyServer) -> None:
    with front(server) as proxy, pytest.raises(MemoryStoreBackendError, match="rediss:// if it wants TLS"):
        everturn.open(proxy.url.replace("rediss", "redis"), timeout=0.5)


@pytest.mark.parametrize("face", FACES)
def test_a_client_that_speaks_tls_is_taken(secure: str, files: Path, face: str) -> None:
    async def awaited() -> None:
        async with redis.asyncio.Redis.from_url(secure, ssl_ca_certs=str(files / "ca.pem")) as client:
            store = everturn.from_client(client)
            await store.add_messages("b", [user("1")])
            assert len(await store.get_history("b")) == 1

    if face == "tasks":
        return asyncio.run(awaited())
    with redis.Redis.from_url(secure, ssl_ca_certs=str(files / "ca.pem")) as client:
        store = everturn.from_client(client)
        say(store, "b", "1")
        assert words(store, "b") == ["1"]
    return None


@pytest.mark.parametrize("face", FACES)
def test_replies_lost_under_tls_double_nothing(server: ValkeyServer, files: Path, face: str) -> None:
    ledger = Ledger()
    with front(server) as proxy:
        url = f"{proxy.url}?ssl_ca_certs={files / 'ca.pem'}"
        with Writers(face, url, ledger, turns, every_kind, without_keys, count=2, timeout=20):
            for _ in range(5):
                ledger.progress(10)
                proxy.swallow_next_reply(matching=b"EVALSHA", then="close")
                ledger.progress(10)
                proxy.cut()
        assert ledger.errors == []
        assert proxy.swallowed
    with everturn.open(server.url, timeout=20) as store:
        ledger.check(store)


@pytest.mark.parametrize(
    ("name", "value"), [("ssl_ca_certs", "/nowhere.pem"), ("ssl_cert_reqs", "perhaps"), ("ssl", "maybe")]
)
def test_options_that_make_no_sense_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        everturn.open("rediss://127.0.0.1", **{name: value})
    assert caught.value.path == name


@pytest.mark.parametrize("sentinel", [False, True])
def test_servers_and_sentinels_are_looked_at_alike(sentinel: bool) -> None:
    address = parse("redis+sentinel://s/service")
    assert login_of(address, {}, sentinel=sentinel).tls is None
    given = login_of(address, {"ssl": True, "ssl_ca_certs": "ca.pem"}, sentinel=sentinel)
    assert given.tls == {"ca_certs": "ca.pem"}
