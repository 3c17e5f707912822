"""The trusted certificates, read once: making a context for each client costs more than most of their requests."""

from __future__ import annotations

import functools
import ssl

import httpx


@functools.cache
def trusted() -> ssl.SSLContext:
    """Returns a context for `verify=`, with httpx's own certificates."""
    return httpx.create_ssl_context(trust_env=False)
