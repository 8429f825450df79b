"""A client of HTTP APIs with retries, rate limit and pages; needs ``headrace-sdk[http]``."""

from __future__ import annotations

import time
from abc import abstractmethod
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import httpx2
import limits
import tenacity
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from typing_extensions import override

from headrace.sdk.config import Lambda, Password, Range, Settings, setting
from headrace.sdk.errors import ConfigError, HeadraceError, RetriableError
from headrace.sdk.ready_sources import Page, PagedSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.sdk.ready_sources import Rows


_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_NOT_DONE = frozenset({429, 503})
"""What says that a request was not carried out."""
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_PORTS = {"http": 80, "https": 443}
_LONGEST_WAIT = timedelta(hours=1)
_SHOWN = 300
"""How many characters of an answer an error shows."""


class HttpError(HeadraceError):
    """An API refused a request, and would refuse it again."""

    code = "http.refused"

    def __init__(self, problem: str = "", *, status: int = 0, fix: str = "") -> None:
        super().__init__(problem, fix=fix)
        self.status = status


def _rate(name: str, value: object) -> limits.RateLimitItem:
    try:
        return limits.parse(str(value))
    except ValueError as error:
        problem = f"Invalid rate {value!r}; expected one such as 10/second or 100/minute."
        raise ConfigError(problem, field=name) from error


def _check_rate(name: str, value: object) -> None:
    if value is not None:
        _rate(name, value)


def _check_url(name: str, value: object) -> None:
    url = urlsplit(str(value))
    if url.scheme not in {"http", "https"} or not url.hostname:
        problem = "Invalid URL; expected one such as https://api.example.com/v1."
        raise ConfigError(problem, field=name)  # without the value, which may hold a password


class HttpSettings(Settings, group="HTTP"):
    """The settings of an ``HttpClient``; derive those of a plugin from them."""

    http_url: str = setting(
        "The address of the API, before each path.",
        validator=Lambda(_check_url, "an http or https URL"),
    )
    http_token: Password | None = setting(
        "The token to send with each request, as a bearer token.", default=None
    )
    http_timeout_ms: int = setting(
        "How long to wait for a connection, and for each part of an answer, in milliseconds.",
        default=30_000,
        validator=Range(at_least=1),
    )
    http_rate_limit: str | None = setting(
        "The most requests of a task, such as 10/second or 100/minute; no limit if it is null.",
        default=None,
        validator=Lambda(_check_rate, "a rate such as 10/second or 100/minute"),
    )


class HttpClient:
    """Sends requests to one API, and again while it is busy. One thread uses it at a time.

    A request is sent again when the connection fails, a time runs out, or the answer is 408,
    425, 429, 500, 502, 503 or 504: after the time of ``Retry-After``, or else after 0.1, 0.2,
    0.4 seconds and so on, and up to half as much again. A request that is not idempotent, as
    POST, is sent again only where the answer says that it was not carried out (429, 503).
    Where the wait would go beyond ``patience``, RetriableError is raised with the wait, and
    the worker decides when to call again.

    Args:
        url: The address of the API, before each path.
        patience: How long a request is sent again here. The default suits ``poll``, which
            should not block for more than a second.
    """

    def __init__(
        self,
        url: str = "",
        *,
        token: Password | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = timedelta(seconds=30),
        rate_limit: str | None = None,
        patience: timedelta = timedelta(seconds=1),
    ) -> None:
        self._patience = patience.total_seconds()
        self._origin = _origin(url)
        self._headers = tuple(headers or ())
        self._rate = None if rate_limit is None else _rate("rate_limit", rate_limit)
        self._requests = MovingWindowRateLimiter(MemoryStorage())
        bearer = {} if token is None else {"Authorization": f"Bearer {token.value}"}
        self._client = httpx2.Client(
            base_url=url,
            headers={"Accept": "application/json", **bearer, **(headers or {})},
            timeout=timeout.total_seconds(),
            follow_redirects=True,
            event_hooks={"request": [self._leave_out_secrets]},
        )

    @classmethod
    def of(cls, settings: HttpSettings, **options: Any) -> HttpClient:
        """Return a client with these settings; ``options`` are the others of the class."""
        return cls(
            settings.http_url,
            token=settings.http_token,
            timeout=timedelta(milliseconds=settings.http_timeout_ms),
            rate_limit=settings.http_rate_limit,
            **options,
        )

    def get(self, path: str, **options: Any) -> httpx2.Response:
        """Return the answer to a GET; see ``request``."""
        return self.request("GET", path, **options)

    def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Return the answer to a request, which has succeeded.

        ``path`` is a path after the client's address, or a whole address; ``options`` are those
        of ``httpx2.Client.request``, such as ``params`` and ``json``. Raises RetriableError:
        the API is busy or cannot be reached for longer than the patience. Raises HttpError: it
        refuses the request.
        """
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception(
                lambda error: (
                    isinstance(error, _BusyError)
                    and (method.upper() in _IDEMPOTENT or error.status in _NOT_DONE)
                )
            ),
            wait=_wait,
            stop=tenacity.stop_before_delay(self._patience),
            reraise=True,
        )
        return again(self._once, method, path, options)

    def pages(self, path: str, **options: Any) -> Iterator[httpx2.Response]:
        """Yield the answers to a GET and to those that its ``Link: rel="next"`` leads to."""
        following: str | None = path
        while following is not None:
            answer = self.get(following, **options)
            yield answer
            following, options = next_link(answer), {}  # the link has the parameters

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _once(self, method: str, path: str, options: Mapping[str, Any]) -> httpx2.Response:
        if self._origin and _origin(path) not in {None, self._origin}:
            # The headers may hold a token, which is for this API only.
            problem = f"{method} to another host than that of the configured URL is refused."
            fix = "Configure the URL that the pages are at, or reset the source's offsets."
            raise HttpError(problem, fix=fix)
        self._keep_to_rate()
        try:
            answer = self._client.request(method, path, **options)
        except httpx2.InvalidURL as error:
            problem = f"{method} failed: the address is invalid: {error}"
            raise HttpError(problem) from error
        except httpx2.TransportError as error:
            problem = f"{method} {_address(error.request)} failed: {error!r}"
            raise _BusyError(problem) from error
        if answer.is_success:
            return answer
        what = f"{method} {_address(answer.request)}"
        problem = f"{what} was answered with {answer.status_code} {answer.reason_phrase}"
        if answer.status_code in _BUSY:
            after = _retry_after(answer.headers.get("Retry-After"))
            raise _BusyError(problem, after=after, status=answer.status_code)
        problem = f"{problem}: {answer.text[:_SHOWN]}".rstrip(": ")
        raise HttpError(problem, status=answer.status_code)

    def _leave_out_secrets(self, request: httpx2.Request) -> None:
        # A redirect elsewhere loses the token by itself, and these headers may hold another.
        if self._origin and _origin(str(request.url)) != self._origin:
            for name in self._headers:
                request.headers.pop(name, None)

    def _keep_to_rate(self) -> None:
        while self._rate is not None and not self._requests.hit(self._rate, "requests"):
            reset, _ = self._requests.get_window_stats(self._rate, "requests")
            wait = max(reset - time.time(), 0.001)
            if wait > self._patience:
                problem = f"The limit of {self._rate} is reached."
                raise RetriableError(problem, after=timedelta(seconds=wait))
            time.sleep(wait)


class HttpPagedSource(PagedSource):
    """Captures the pages of an HTTP API, each with the address of the next.

        class Items(HttpPagedSource):
            first = "/items?limit=100"

            def rows(self, answer: httpx2.Response) -> Rows:
                return answer.json()["items"]

    Its position is the address of the next page. A page without a next one is the end, unless
    ``next_page`` says where what comes later will be; a page that has no rows and leads to
    itself is asked for again until it has.
    """

    settings: HttpSettings
    first: ClassVar[str] = ""
    """The first page: a path after the address of the API."""

    @property
    @override
    def partition(self) -> Mapping[str, str]:
        # Offsets are shown to whoever may read them: no password and no query.
        shown = self.settings.http_url
        url = httpx2.URL(shown)
        if url.userinfo or url.query or url.fragment:
            shown = str(url.copy_with(username=None, password=None, query=None, fragment=None))
        return {"url": shown, "first": self.first}

    @abstractmethod
    def rows(self, answer: httpx2.Response) -> Rows:
        """Return the rows of a page."""

    def next_page(self, answer: httpx2.Response) -> str | None:
        """Return the address of the next page, or its path; None at the end.

        The default is the answer's ``Link: rel="next"``.
        """
        return next_link(answer)

    def client(self) -> HttpClient:
        """Return the client. Override it to send other headers or to be more patient."""
        return HttpClient.of(self.settings)

    @override
    def page(self, cursor: str | None) -> Page | None:
        if self._client is None:
            self._client = self.client()
        here = cursor or self.first
        answer = self._client.get(here)
        rows, following = self.rows(answer), self.next_page(answer)
        return None if following == here and not len(rows) else Page(rows, following)

    _client: HttpClient | None = None

    @override
    def stop(self) -> None:
        if self._client is not None:
            self._client.close()


def next_link(answer: httpx2.Response) -> str | None:
    """Return where the header ``Link`` of an answer says that the next page is, or None."""
    link = answer.links.get("next", {}).get("url")
    try:
        return None if link is None else str(answer.url.join(link))
    except (httpx2.InvalidURL, ValueError) as error:
        problem = f"{_address(answer.request)} was answered with an invalid Link: {error}"
        raise HttpError(problem) from error


def _origin(url: str) -> tuple[str, str, int | None] | None:
    """Return the scheme, host and port of an address; None for a path."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        problem = f"The address of a page is invalid: {error}"
        raise HttpError(problem) from error
    if parsed.is_relative_url:
        return None
    return parsed.scheme, parsed.host, parsed.port or _PORTS.get(parsed.scheme)


class _BusyError(RetriableError):
    """The API is busy, or cannot be reached."""

    def __init__(
        self, problem: str = "", *, after: timedelta | None = None, status: int = 0
    ) -> None:
        super().__init__(problem, after=after)
        self.status = status


_backoff = tenacity.wait_exponential(multiplier=0.1) + tenacity.wait_random(0, 0.05)


def _wait(state: tenacity.RetryCallState) -> float:
    """Return how many seconds to wait: as long as the API has asked for, or ever longer."""
    assert state.outcome is not None
    error = state.outcome.exception()
    assert isinstance(error, RetriableError)
    return _backoff(state) if error.after is None else error.after.total_seconds()


def _retry_after(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        if text.strip().isdecimal():
            return min(timedelta(seconds=int(text)), _LONGEST_WAIT)
        end = parsedate_to_datetime(text)
        wait = end.replace(tzinfo=end.tzinfo or UTC) - datetime.now(UTC)
    except OverflowError:
        return _LONGEST_WAIT
    except ValueError:
        return None
    return min(max(wait, timedelta(0)), _LONGEST_WAIT)


def _address(request: httpx2.Request) -> str:
    """Return where a request goes, without the query, which may hold a secret."""
    return str(request.url.copy_with(query=None, fragment=None, username=None, password=None))
