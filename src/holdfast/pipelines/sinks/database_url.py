"""A database's URL as a query carries it, and as a connection needs it."""

from __future__ import annotations

import sqlalchemy as sql
from sqlalchemy.engine import URL, make_url

from holdfast.pipelines.intake.secret_references import is_reference, resolved
from holdfast.pipelines.sinks.target import TargetError

OPTION = "target: the password"


def checked(url: str) -> str:
    """Return a URL that may be pickled and shown. TargetError: it has a password, or is none."""
    try:
        parsed = make_url(url)
    except sql.exc.ArgumentError:
        raise TargetError(
            "target: no URL of a database; use sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        ) from None
    if parsed.password and not is_reference(str(parsed.password)):
        raise TargetError(
            f"{OPTION} is not written into a query, which plans and logs show; give "
            "postgresql://USER:env:NAME@HOST/DATABASE or USER:file:PATH (as %2F where it has a "
            "slash), which is read where a connection is opened"
        )
    return url


def with_password(url: str) -> URL:
    """Return the URL with its password in its place. OptionError: that can't be had here."""
    parsed = make_url(url)
    if not parsed.password:
        return parsed
    return parsed.set(password=resolved(OPTION, str(parsed.password)))
