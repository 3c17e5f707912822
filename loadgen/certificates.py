"""The certificates a client trusts: this machine's own, read once, and only where an address is https."""

from __future__ import annotations

import functools
import ssl


def trusted(base_url: str) -> ssl.SSLContext:
    """Returns the context for `verify=`: the system's certificates for `https`, and for anything else none at all.

    The system's, because they are what the load's own connections trust, and where an operator adds a company's
    authority; reading them costs more than most requests do. `SSL_CERT_FILE` names others, as for any program.
    """
    return _of_the_system() if base_url.lower().startswith("https:") else _none()


@functools.cache
def _of_the_system() -> ssl.SSLContext:
    return ssl.create_default_context()


@functools.cache
def _none() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # refuses every certificate, wherever a redirect may lead
