"""The web UI: files that `make ui-build` has made, and a page that says so where there are none.

    /             leads to /ui/
    /ui/…         the one page; which one it shows is in the URL
    /assets/…     scripts and styles, whose names have a hash of their content: kept for a year

The policy lets a page load what this server has, and nothing else; it runs no script that stands in a page.
"""

from __future__ import annotations

import html
import mimetypes
import secrets
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.responses import FileResponse, RedirectResponse, Response

from unistream.base.errors import NotFound

BUILT: Final = Path(__file__).parents[1] / "_ui"
"""Where `make ui-build` puts them, and where a wheel has them."""

NONCE: Final = "NONCE-OF-THIS-ANSWER"
"""Stands in the page where libraries look for it that add styles."""

SERVER_VERSION: Final = "VERSION-OF-THIS-SERVER"
"""Stands in the page where its script looks for the version that it was made for."""

FOREVER: Final = "public, max-age=31536000, immutable"
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
NOT_BUILT: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>unistream</title></head>
<body><h1>unistream</h1>
<p>The JobManager runs. Its web pages are not built in this checkout: install Node 20 or newer and run
<code>make ui-build</code>; wheels bring them.</p>
<p>The REST API is described by <a href="/openapi.json">/openapi.json</a>; jobs are listed by
<code>unistream list</code> and at <a href="/jobs/overview">/jobs/overview</a>.</p>
</body></html>
"""


class PagesApi:
    """The handlers. `root`: where the built files are; None: nowhere. `version`: of this server."""

    def __init__(self, root: Path | None, version: str) -> None:
        self._root = root
        self._version = version

    def routes(self, router: APIRouter) -> None:
        add = router.add_api_route
        add("/", self.start, include_in_schema=False)
        add("/ui/{path:path}", self.page, include_in_schema=False)
        add("/assets/{name}", self.asset, include_in_schema=False)
        add("/icon.svg", self.icon, include_in_schema=False)

    def start(self) -> Response:
        return self.page("") if self._root is None else RedirectResponse("/ui/", 307)

    def page(self, path: str) -> Response:
        """Answers with the same page for every path: which one it shows is up to its script."""
        del path
        nonce = secrets.token_urlsafe(16)
        text = NOT_BUILT if self._root is None else (self._root / "index.html").read_text("utf-8")
        headers = {**HEADERS, "Content-Security-Policy": policy(nonce), "Cache-Control": "no-store"}
        text = text.replace(NONCE, nonce).replace(SERVER_VERSION, html.escape(self._version))
        return Response(text, media_type="text/html", headers=headers)

    def asset(self, name: str) -> Response:
        """Answers with a file that a page needs. Raises NotFound."""
        return self._file(f"assets/{name}", FOREVER)

    def icon(self) -> Response:
        """Answers with the icon of the web UI. Raises NotFound."""
        return self._file("icon.svg", "public, max-age=3600")

    def _file(self, path: str, caching: str) -> Response:
        found = None if self._root is None else self._root / path
        if found is None or not found.is_file():
            raise NotFound(f"there is no file /{path[:200]}")
        kind = mimetypes.guess_type(found.name)[0] or "application/octet-stream"
        headers = {**HEADERS, "Cache-Control": caching, "Content-Security-Policy": policy("")}
        return FileResponse(found, media_type=kind, headers=headers)


def built() -> Path | None:
    """The folder with the built files, if there is one."""
    return BUILT if (BUILT / "index.html").is_file() else None


def policy(nonce: str) -> str:
    """The Content-Security-Policy of an answer.

    >>> policy("x").split("; ")[:3]
    ["default-src 'none'", "script-src 'self'", "style-src 'self' 'nonce-x'"]
    """
    styles = f"style-src 'self' 'nonce-{nonce}'" if nonce else "style-src 'self'"
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            styles,
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
