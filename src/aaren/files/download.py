"""Get one file over HTTP: resumed, limited in size, checked, and written atomically."""

import http.client
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeAlias

from aaren.errors import DataError
from aaren.files.archive import file_sha256
from aaren.version import __version__

Progress: TypeAlias = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all if known

ATTEMPTS = 5
TIMEOUT_SECONDS = 30.0
SLOWEST_BYTES_PER_SECOND = 1_000  # over every stretch of TIMEOUT_SECONDS; less counts as broken off
_CHUNK = 1 << 18


class UnreachableError(DataError):
    """The server was unreachable or kept disconnecting; what has arrived is kept for the next try."""


def download(
    url: str,
    target: Path,
    *,
    limit_bytes: int,
    sha256: str = "",
    progress: Progress | None = None,
    pause_seconds: float = 1.0,
) -> Path:
    """Download `url` to `target`.

    What has arrived waits in `<target>.part`, beside it the server's mark of that version, and the next call
    resumes there when the server still has the same version. Without a checksum, an answer of which
    no length is given cannot be told from a truncated one, and is refused.
    """
    _require_http(url)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    reason: Exception | None = None
    for attempt in range(ATTEMPTS):
        time.sleep(pause_seconds * attempt)
        try:
            _transfer(url, part, limit_bytes, progress or _silent, has_checksum=bool(sha256))
        except urllib.error.HTTPError as error:
            error.close()
            reason = error
            if error.code == 416:  # the part is longer than the file: begin again
                part.unlink(missing_ok=True)
            elif 400 <= error.code < 500 and error.code not in (408, 429):
                break  # asking again would not help
        except DataError:
            raise
        except ValueError as error:  # an address, of ours or of a redirect, that is none
            raise DataError(f"{url}: not an address that can be followed ({error}).") from error
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = error
            if isinstance(getattr(error, "reason", None), socket.gaierror | ConnectionRefusedError):
                break  # no network or no such host: asking again would only keep the user waiting
        else:
            _check(part, url, sha256)
            part.replace(target)
            _tag(part).unlink(missing_ok=True)
            return target
    raise UnreachableError(f"cannot get {url}: {getattr(reason, 'reason', reason)}")


def _require_http(url: str) -> str:
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in ("http", "https"):
        raise DataError(f"{url}: only http and https are downloaded.")
    return scheme


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to http and https only, and never from https back to http."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Check where a redirect leads."""
        if _require_http(newurl) == "http" and req.type == "https":
            raise DataError(
                f"{req.full_url} leads from https to {newurl}, which anyone could change: refused."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """Build an opener that knows http and https alone.

    One of its own each time: urlopen would remember the proxies of its first use for the rest of the process.
    """
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def _length(url: str, response: http.client.HTTPResponse, *, has_checksum: bool) -> int | None:
    """Return how many bytes the server says will follow; None where their end is told otherwise."""
    told = response.headers.get_all("Content-Length") or []
    is_chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
    if is_chunked or (not told and has_checksum):
        return None
    if not told:
        raise DataError(
            f"{url}: the server does not say how long the file is, and no checksum is known: a truncated one "
            f"could not be told from a whole one. Get it elsewhere."
        )
    if len(set(told)) > 1 or not (told[0].isascii() and told[0].isdigit()):
        raise DataError(f"{url}: the server's Content-Length is no number: {', '.join(told)[:100]!r}.")
    return int(told[0])


def _transfer(url: str, part: Path, limit_bytes: int, progress: Progress, *, has_checksum: bool) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"aaren/{__version__}", "Accept-Encoding": "identity"}
    if have and _tag(part).exists():
        # If-Range: the server sends the rest only when it still has the version of which we hold the
        # beginning.
        headers |= {"Range": f"bytes={have}-", "If-Range": _tag(part).read_text()}
    request = urllib.request.Request(url, headers=headers)
    with _opener().open(request, timeout=TIMEOUT_SECONDS) as response:
        is_rest = response.status == 206 and response.headers.get("Content-Range", "").startswith(
            f"bytes {have}-"
        )
        have = have if is_rest else 0
        length = _length(url, response, has_checksum=has_checksum)
        total = None if length is None else have + length
        if total is not None and total > limit_bytes:
            raise DataError(
                f"{url} has {total:,} bytes, more than the {limit_bytes:,} expected at most: refused."
            )
        _remember_version(part, response.headers.get("ETag"), response.headers.get("Last-Modified"))
        with part.open("ab" if is_rest else "wb") as sink:
            pace = _Pace(have)
            while chunk := response.read1(_CHUNK):  # what is there, without waiting for more
                have += len(chunk)
                pace.check(have)
                if have > limit_bytes:
                    _discard(part)
                    raise DataError(
                        f"{url} sends more than the {limit_bytes:,} bytes expected at most: refused."
                    )
                sink.write(chunk)
                progress(part.stem, have, total)
    if total is not None and have < total:
        raise ConnectionError(f"the connection broke off after {have:,} of {total:,} bytes")


class _Pace:
    """Detects a server that sends a byte now and then, which a socket's timeout does not."""

    def __init__(self, have: int) -> None:
        self.began, self.had = time.monotonic(), have

    def check(self, have: int) -> None:
        """Raise if less arrived than should over a stretch of time."""
        seconds = time.monotonic() - self.began
        if seconds < TIMEOUT_SECONDS:
            return
        speed = (have - self.had) / seconds
        if speed < SLOWEST_BYTES_PER_SECOND:
            raise ConnectionError(
                f"{speed:,.0f} bytes per second, less than {SLOWEST_BYTES_PER_SECOND:,}: given up after "
                f"{have:,} bytes"
            )
        self.began, self.had = time.monotonic(), have


def _check(part: Path, url: str, sha256: str) -> None:
    if not sha256:
        return
    found = file_sha256(part)
    if found != sha256:
        _discard(part)
        raise DataError(
            f"wrong checksum: {url} should have sha256 {sha256}, but has {found}. It was not kept. "
            f"Try again; if its owner has changed the file and you trust it, add --any-checksum."
        )


def _remember_version(part: Path, etag: str | None, modified: str | None) -> None:
    version = etag if etag and not etag.startswith("W/") else modified
    if version:
        _tag(part).write_text(version)
    else:
        _tag(part).unlink(missing_ok=True)


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _tag(part).unlink(missing_ok=True)


def _tag(part: Path) -> Path:
    return part.with_name(part.name + ".tag")


def _silent(_name: str, _done: int, _total: int | None) -> None:
    pass
