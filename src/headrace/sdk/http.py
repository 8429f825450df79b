"""A client for HTTP APIs with retries, rate limit and paging; needs ``headrace-sdk[http]``."""

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
"""The status codes of requests that were not executed."""
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_PORTS = {"http": 80, "https": 443}
_LONGEST_WAIT = timedelta(hours=1)
_SHOWN = 300
"""The number of characters of a response that an error shows."""


class HttpError(HeadraceError):
    """The API rejected a request, and would reject it again."""

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
    """The settings of an ``HttpClient``; base class for the settings of a plugin."""

    http_url: str = setting(
        "The base URL of the API.",
        validator=Lambda(_check_url, "an http or https URL"),
    )
    http_token: Password | None = setting(
        "The bearer token to send with each request.", default=None
    )
    http_timeout_ms: int = setting(
        "The timeout for connecting, and for each read of a response, in milliseconds.",
        default=30_000,
        validator=Range(at_least=1),
    )
    http_rate_limit: str | None = setting(
        "The maximum request rate of a task, such as 10/second or 100/minute; null for no "
        "limit.",
        default=None,
        validator=Lambda(_check_rate, "a rate such as 10/second or 100/minute"),
    )


class HttpClient:
    """Sends requests to one API, with retries. Not thread-safe.

    A request is retried after a connection error, a timeout, or the status 408, 425, 429, 500,
    502, 503 or 504: after the time in ``Retry-After``, or else after 0.1, 0.2, 0.4 seconds and
    so on, plus up to 0.05 seconds at random. A request that is not idempotent, such as POST, is
    retried only if the status says that it was not executed (429, 503). If the wait would
    exceed ``patience``, RetriableError is raised with the wait, and the worker decides when to
    retry.

    Args:
        url: The base URL of the API.
        patience: How long requests are retried in the client. The default suits ``poll``, which
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
        """Return a client with these settings; ``options`` are further class arguments."""
        return cls(
            settings.http_url,
            token=settings.http_token,
            timeout=timedelta(milliseconds=settings.http_timeout_ms),
            rate_limit=settings.http_rate_limit,
            **options,
        )

    def get(self, path: str, **options: Any) -> httpx2.Response:
        """Return the response to a GET; see ``request``."""
        return self.request("GET", path, **options)

    def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Return the successful response to a request.

        ``path`` is relative to the client's base URL, or an absolute URL; ``options`` are those
        of ``httpx2.Client.request``, such as ``params`` and ``json``. Raises RetriableError:
        the API is busy or unreachable for longer than ``patience``. Raises HttpError: the API
        rejects the request.
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
        """Yield the response to a GET, and the following pages by ``Link: rel="next"``."""
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
            # The headers may contain a token, which is for this API only.
            problem = f"{method} to another host than that of the configured URL is refused."
            fix = "Configure the URL of the pages, or reset the source's offsets."
            raise HttpError(problem, fix=fix)
        self._keep_to_rate()
        try:
            answer = self._client.request(method, path, **options)
        except httpx2.InvalidURL as error:
            problem = f"{method} failed: invalid URL: {error}"
            raise HttpError(problem) from error
        except httpx2.TransportError as error:
            problem = f"{method} {_address(error.request)} failed: {error!r}"
            raise _BusyError(problem) from error
        if answer.is_success:
            return answer
        what = f"{method} {_address(answer.request)}"
        problem = f"{what} failed with status {answer.status_code} {answer.reason_phrase}"
        if answer.status_code in _BUSY:
            after = _retry_after(answer.headers.get("Retry-After"))
            raise _BusyError(problem, after=after, status=answer.status_code)
        problem = f"{problem}: {answer.text[:_SHOWN]}".rstrip(": ")
        raise HttpError(problem, status=answer.status_code)

    def _leave_out_secrets(self, request: httpx2.Request) -> None:
        # httpx2 drops the token on a redirect to another host; these headers may contain one.
        if self._origin and _origin(str(request.url)) != self._origin:
            for name in self._headers:
                request.headers.pop(name, None)

    def _keep_to_rate(self) -> None:
        while self._rate is not None and not self._requests.hit(self._rate, "requests"):
            reset, _ = self._requests.get_window_stats(self._rate, "requests")
            wait = max(reset - time.time(), 0.001)
            if wait > self._patience:
                problem = f"The rate limit of {self._rate} is reached."
                raise RetriableError(problem, after=timedelta(seconds=wait))
            time.sleep(wait)


class HttpPagedSource(PagedSource):
    """A capture of the pages of an HTTP API in which each page links to the next.

        class Items(HttpPagedSource):
            first = "/items?limit=100"

            def rows(self, answer: httpx2.Response) -> Rows:
                return answer.json()["items"]

    The position is the URL of the next page. A page without a next page is the end, unless
    ``next_page`` returns the URL for later rows; a page without rows that links to itself is
    polled again until it has rows.
    """

    settings: HttpSettings
    first: ClassVar[str] = ""
    """The path of the first page, relative to the base URL."""

    @property
    @override
    def partition(self) -> Mapping[str, str]:
        # Offsets are visible to all who may read them: leave out password and query.
        shown = self.settings.http_url
        url = httpx2.URL(shown)
        if url.userinfo or url.query or url.fragment:
            shown = str(url.copy_with(username=None, password=None, query=None, fragment=None))
        return {"url": shown, "first": self.first}

    @abstractmethod
    def rows(self, answer: httpx2.Response) -> Rows:
        """Return the rows of a page."""

    def next_page(self, answer: httpx2.Response) -> str | None:
        """Return the URL or path of the next page; None at the end.

        The default is the response's ``Link: rel="next"``.
        """
        return next_link(answer)

    def client(self) -> HttpClient:
        """Return the client. Override it to set other headers or more ``patience``."""
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
    """Return the URL of the next page from the ``Link`` header of a response, or None."""
    link = answer.links.get("next", {}).get("url")
    try:
        return None if link is None else str(answer.url.join(link))
    except (httpx2.InvalidURL, ValueError) as error:
        problem = f"{_address(answer.request)} returned an invalid Link header: {error}"
        raise HttpError(problem) from error


def _origin(url: str) -> tuple[str, str, int | None] | None:
    """Return the scheme, host and port of a URL; None for a path."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        problem = f"The URL of a page is invalid: {error}"
        raise HttpError(problem) from error
    if parsed.is_relative_url:
        return None
    return parsed.scheme, parsed.host, parsed.port or _PORTS.get(parsed.scheme)


class _BusyError(RetriableError):
    """The API is busy or unreachable."""

    def __init__(
        self, problem: str = "", *, after: timedelta | None = None, status: int = 0
    ) -> None:
        super().__init__(problem, after=after)
        self.status = status


_backoff = tenacity.wait_exponential(multiplier=0.1) + tenacity.wait_random(0, 0.05)


def _wait(state: tenacity.RetryCallState) -> float:
    """Return the wait in seconds: from ``Retry-After``, or exponential backoff."""
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
    """Return the URL of a request without parts that may contain secrets, such as the query."""
    return str(request.url.copy_with(query=None, fragment=None, username=None, password=None))
