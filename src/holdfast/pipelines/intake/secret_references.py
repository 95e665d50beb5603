"""Secrets by their names: `env:NAME` and `file:PATH`, for whatever a query connects to.

A reference goes into options, plans, checkpoints and workers; what it means is read here, in the
process that opens a connection and at the moment it does. That is never logged, kept or pickled.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from holdfast.pipelines.intake.option_values import OptionError

REFERENCES: Final = ("env:", "file:")
SECRET_BYTES_MAX: Final = 1 << 20


def is_reference(text: str) -> bool:
    """Whether a text names a secret.

    >>> is_reference("env:PASSWORD"), is_reference("swordfish"), is_reference("env:")
    (True, False, False)
    """
    return any(text.startswith(kind) and text != kind for kind in REFERENCES)


def resolved(shown: str, reference: str) -> str:
    """Return what a reference means. OptionError, with the option `shown`: it can't be had."""
    kind, _, rest = reference.partition(":")
    found = os.environ.get(rest) if kind == "env" else _content(shown, rest)
    if found is None:
        raise OptionError(
            f"{shown}: this process has no environment variable {rest!r}; set it for Spark's "
            "driver and executors"
        )
    if not found:
        raise OptionError(f"{shown}: {reference} is empty")
    if "\0" in found:  # clients in C would take what stands before it
        raise OptionError(
            f"{shown}: {reference} has a zero byte in it, as UTF-16 has; write it in UTF-8"
        )
    return found


def _content(shown: str, path: str) -> str:
    """Return what a file holds without the line's end that editors put there."""
    try:
        with Path(path).open("rb") as file:
            found = file.read(SECRET_BYTES_MAX + 1)
        text = found.decode()
    except OSError as error:
        raise OptionError(
            f"{shown}: {path}: {error.strerror}; the driver and each executor need the file"
        ) from error
    except UnicodeDecodeError:
        # Without its cause, which would quote the bytes.
        raise OptionError(f"{shown}: {path} is not text in UTF-8") from None
    except ValueError:  # a zero byte
        raise OptionError(f"{shown}: {path!r} can't be a file's name") from None
    if len(found) > SECRET_BYTES_MAX:
        raise OptionError(f"{shown}: {path} has more than {SECRET_BYTES_MAX} bytes")
    return text.rstrip("\r\n")
