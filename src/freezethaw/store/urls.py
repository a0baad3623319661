"""Store URLs: which are understood, and how they are shown."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from freezethaw.errors import StoreError

EXAMPLES = "'sqlite:///study.db' or 'postgresql+psycopg://user@host/database'"
MASK = "***"
SECRET = re.compile(r"pass|secret|token", re.IGNORECASE)


def parse(text: str) -> URL:
    """A URL of a store, or a clear refusal that shows no password."""
    if not isinstance(text, str):
        raise StoreError(f"a store is named by a URL such as {EXAMPLES}, not by {type(text).__name__}")
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError(f"cannot read the store's URL; write {EXAMPLES}") from None
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        if url.database in (None, "", ":memory:") or "mode" in url.query or str(url.database).startswith("file:"):
            raise StoreError(
                "a store in SQLite is a file: write 'sqlite:///study.db', or no store to keep it in memory"
            )
        return url.set(drivername="sqlite")
    raise StoreError(f"stores of kind {url.drivername!r} are not known; use {EXAMPLES}")


def sqlite_file(url: URL) -> Path:
    """The file of a SQLite URL."""
    return Path(str(url.database)).expanduser().absolute()


def is_durable(url: URL) -> bool:
    """Whether a commit to a SQLite file must be on the disk when it returns: always, unless the URL says otherwise."""
    asked = dict(url.query)
    how = asked.pop("synchronous", "full")
    if asked or how not in ("full", "off"):
        raise StoreError(f"a store in SQLite knows '?synchronous=off' and nothing else in its URL, not {url.query!r}")
    return how == "full"


def shown(url: URL) -> str:
    """The URL as it may be shown: passwords masked, in the query too."""
    masked = {key: MASK if SECRET.search(key) else value for key, value in url.query.items()}
    return url.set(query=masked).render_as_string(hide_password=True)


def scrubbed(text: str, url: URL) -> str:
    """A message of a driver without the passwords of the URL."""
    secrets = [str(url.password or ""), *(str(v) for k, v in url.query.items() if SECRET.search(k))]
    for secret in filter(None, secrets):
        text = text.replace(secret, MASK)
    return text
