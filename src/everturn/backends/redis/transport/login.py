"""The first words on a connection: TLS, password and database; for blocking and asynchronous connections alike."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from everturn.backends.redis import errors
from everturn.backends.redis.errors import Refusal
from everturn.backends.redis.transport.resp import Command

_CERT_REQS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Login:
    """Credentials for all nodes of a deployment. `tls` has the options of TLS, without `ssl_`; None: no TLS."""

    def __init__(
        self, username: str | None, password: str | None, db: int = 0, tls: Mapping[str, Any] | None = None
    ) -> None:
        self.tls = tls
        self._context: ssl.SSLContext | None = None
        self.commands: list[Command] = []
        if username:
            self.commands.append(("AUTH", username, password or ""))
        elif password:
            self.commands.append(("AUTH", password))
        if db:
            self.commands.append(("SELECT", db))
        self._required = len(self.commands)
        # Shown by CLIENT LIST; a refusal does no harm. There is always an answer to wait for: some servers tell only
        # then that they do not want us (TLS 1.3), and no request must be in doubt for that.
        self.commands.append(("CLIENT", "SETINFO", "LIB-NAME", "everturn"))

    def context(self) -> ssl.SSLContext | None:
        """Return the settings of TLS, read from their files once; None without TLS. Raises OSError."""
        if self._context is None and self.tls is not None:
            self._context = _context(self.tls)
        return self._context

    def check(self, replies: Sequence[Any], where: str) -> None:
        """Raise MemoryStoreBackendError if the server refused the password or the database."""
        for reply in replies[: self._required]:
            if type(reply) is Refusal:
                raise errors.refused(reply, where)


def _context(given: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    reqs = given.get("cert_reqs", ssl.CERT_REQUIRED)
    mode = _CERT_REQS[reqs] if isinstance(reqs, str) else reqs
    context.check_hostname = bool(given.get("check_hostname", True)) and mode != ssl.CERT_NONE
    context.verify_mode = mode
    if given.get("certfile") or given.get("keyfile"):
        context.load_cert_chain(given["certfile"], given.get("keyfile"), given.get("password"))
    if any(given.get(name) for name in ("ca_certs", "ca_path", "ca_data")):
        context.load_verify_locations(given.get("ca_certs"), given.get("ca_path"), given.get("ca_data"))
    if given.get("min_version") is not None:
        context.minimum_version = given["min_version"]
    if given.get("ciphers"):
        context.set_ciphers(given["ciphers"])
    return context
