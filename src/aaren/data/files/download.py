"""Get one file over HTTP: resumed where it broke off, within a size, checked, and whole or not there.

Knows addresses and bytes only; which file belongs to which dataset is `aaren.data.source`'s business.
"""

import hashlib
import http.client
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from aaren.errors import DataError
from aaren.version import __version__

Progress: TypeAlias = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all if known

ATTEMPTS = 5
TIMEOUT_SECONDS = 30.0
_CHUNK = 1 << 18


class UnreachableError(DataError):
    """The place could not be reached or kept breaking off; what has arrived is kept for the next try."""


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
    goes on from there when the server still has the same version.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f"{url}: only http and https are downloaded.")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    reason: Exception | None = None
    for attempt in range(ATTEMPTS):
        time.sleep(pause_seconds * attempt)
        try:
            _transfer(url, part, limit_bytes, progress or _silent)
        except urllib.error.HTTPError as error:
            error.close()
            reason = error
            if error.code == 416:  # the part is longer than the file: begin again
                part.unlink(missing_ok=True)
            elif 400 <= error.code < 500 and error.code not in (408, 429):
                break  # asking again would not help
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


def _transfer(url: str, part: Path, limit_bytes: int, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"aaren/{__version__}", "Accept-Encoding": "identity"}
    if have and _tag(part).exists():
        # If-Range: the server sends the rest only when it still has the version of which we hold the
        # beginning.
        headers |= {"Range": f"bytes={have}-", "If-Range": _tag(part).read_text()}
    request = urllib.request.Request(url, headers=headers)
    # An opener of its own: urlopen would remember the proxies of its first use for the rest of the process.
    with urllib.request.build_opener().open(request, timeout=TIMEOUT_SECONDS) as response:
        is_rest = response.status == 206 and response.headers.get("Content-Range", "").startswith(
            f"bytes {have}-"
        )
        have = have if is_rest else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        if total is not None and total > limit_bytes:
            raise DataError(
                f"{url} has {total:,} bytes, more than the {limit_bytes:,} expected at most: refused."
            )
        _remember_version(part, response.headers.get("ETag"), response.headers.get("Last-Modified"))
        with part.open("ab" if is_rest else "wb") as sink:
            while chunk := response.read(_CHUNK):
                have += len(chunk)
                if have > limit_bytes:
                    _discard(part)
                    raise DataError(
                        f"{url} sends more than the {limit_bytes:,} bytes expected at most: refused."
                    )
                sink.write(chunk)
                progress(part.stem, have, total)
    if total is not None and have < total:
        raise ConnectionError(f"the connection broke off after {have:,} of {total:,} bytes")


def _check(part: Path, url: str, sha256: str) -> None:
    if not sha256:
        return
    with part.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
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
