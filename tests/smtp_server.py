"""A mail server that keeps what it is sent: just enough of SMTP, with TLS and logins."""

from __future__ import annotations

import base64
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path


@dataclass
class SmtpServer:
    """What mails have come, and how it behaves.

    Args:
        certificate: The file of its certificate and key, for TLS.
        from_begin: Whether a connection is TLS from its begin, and not after STARTTLS.
        users: Who may log in, and by which password.
        refuses: Recipients that it does not take.
        hangs: Whether it accepts connections and says nothing.
        fails: The answers to the next mails, in place of taking them.
        drops_quit: Whether it closes the connection when a client says goodbye.
    """

    certificate: Path | None = None
    from_begin: bool = False
    users: dict[str, str] = field(default_factory=dict)
    refuses: set[str] = field(default_factory=set)
    hangs: bool = False
    fails: list[bytes] = field(default_factory=list)
    drops_quit: bool = False
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    logins: list[tuple[str, bool]] = field(default_factory=list)
    """Who has logged in, and whether the line was encrypted."""
    port: int = 0

    def tls(self) -> ssl.SSLContext:
        assert self.certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        return context

    @contextmanager
    def serving(self) -> Iterator[SmtpServer]:
        """Serve on a port of this machine for as long as this lasts."""
        over = threading.Event()
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                if outer.hangs:
                    over.wait(60)
                    return
                with closing(_Session(outer, self.request)) as session:
                    session.run()

        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
            server.daemon_threads = True
            self.port = server.server_address[1]
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            try:
                yield self
            finally:
                over.set()
                server.shutdown()


class _Session:
    """One connection."""

    def __init__(self, server: SmtpServer, line: socket.socket) -> None:
        self.server = server
        self.encrypted = False
        self._open(line)
        self.to: list[str] = []

    def _open(self, line: socket.socket) -> None:
        self.line = line
        self.file = line.makefile("rb")

    def say(self, text: str) -> None:
        self.line.sendall(f"{text}\r\n".encode())

    def close(self) -> None:
        self.file.close()
        self.line.close()

    def encrypt(self) -> bool:
        self.file.close()
        self.line = self.server.tls().wrap_socket(
            self.line, server_side=True, do_handshake_on_connect=False
        )
        try:
            self.line.do_handshake()
        except OSError:
            return False  # a client that does not trust it
        self._open(self.line)
        self.encrypted = True
        return True

    def run(self) -> None:
        if self.server.from_begin and not self.encrypt():
            return
        self.say("220 tests")
        while line := self.file.readline():
            verb, _, rest = line.decode().strip().partition(" ")
            if verb.upper() == "QUIT":
                if not self.server.drops_quit:
                    self.say("221 bye")
                return
            if not self.obey(verb.upper(), rest):
                return

    def obey(self, verb: str, rest: str) -> bool:
        match verb:
            case "EHLO" | "HELO":
                offers = ["tests"]
                if self.server.certificate and not self.encrypted:
                    offers.append("STARTTLS")
                if self.server.users:
                    offers.append("AUTH PLAIN")
                last = len(offers) - 1
                for number, offer in enumerate(offers):
                    self.say(f"250{' ' if number == last else '-'}{offer}")
            case "STARTTLS":
                self.say("220 go on")
                return self.encrypt()
            case "AUTH":
                _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
                good = self.server.users.get(user) == password
                if good:
                    self.server.logins.append((user, self.encrypted))
                self.say("235 welcome" if good else "535 5.7.8 wrong user or password")
            case "RCPT":
                address = rest.partition("<")[2].partition(">")[0]
                if address in self.server.refuses:
                    self.say("550 5.1.1 nobody of that name")
                else:
                    self.to.append(address)
                    self.say("250 fine")
            case "DATA":
                self.say("354 go on")
                self.take()
            case _:
                self.say("250 fine")
        return True

    def take(self) -> None:
        lines = []
        while (line := self.file.readline()) not in {b".\r\n", b""}:
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        if self.server.fails:
            self.say(self.server.fails.pop(0).decode())
            return
        mail = message_from_bytes(b"".join(lines), policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.server.mails.append(mail)
        self.server.recipients.append(self.to)
        self.to = []
        self.say("250 taken")
