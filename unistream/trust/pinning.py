"""How a client that knows a fingerprint finds the authority that has it: kubeadm's and k3s' way.

The authorities of a cluster are no secret: a server gives them to anybody. The client asks without verifying,
says nothing of itself, and believes what it gets only if it has the fingerprint that came with its token.
"""

from __future__ import annotations

import http.client
import ssl
import threading
from typing import Final

from unistream.base.errors import ConfigError
from unistream.trust.authority import fingerprint_of

ROOTS_PATH: Final = "/v1/unistream/certificates/authorities"
ROOTS_BYTES_MAX: Final = 100_000

_found: dict[tuple[str, int, str], str] = {}
_lock: Final = threading.Lock()


def pinned_roots(host: str, port: int, fingerprint: str, within_s: float) -> str:
    """The authority with the fingerprint, PEM, which the server shows among its own. Asked once.

    The others are not believed: who sits in between can show that one, which everybody has, with one of his.

    Raises:
        ConfigError: it shows others.
        OSError: it does not answer.
    """
    key = (host, port, fingerprint)
    with _lock:
        if key in _found:
            return _found[key]
    shown = split(_asked(host, port, within_s))
    roots = next((one for one in shown if fingerprint_of(one) == fingerprint), "")
    if not roots:
        raise ConfigError(
            f"https://{host}:{port} is not the cluster of this token: its certificates are signed by another "
            "authority; look whether the address is right, and take a token of that cluster"
        )
    with _lock:
        _found[key] = roots
    return roots


def split(roots: str) -> list[str]:
    """Each certificate of a text of several.

    >>> len(split(("-----BEGIN CERTIFICATE-----" + "-----END CERTIFICATE-----") * 2))
    2
    """
    end = "-----END CERTIFICATE-----"
    return [part.lstrip() + end for part in roots.split(end)[:-1]]


def _asked(host: str, port: int, within_s: float) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # what it answers is verified by its fingerprint
    connection = http.client.HTTPSConnection(host, port, timeout=within_s, context=context)
    try:
        connection.request("GET", ROOTS_PATH)
        answer = connection.getresponse()
        text = answer.read(ROOTS_BYTES_MAX).decode("utf-8", "replace")
    except http.client.HTTPException as error:
        raise OSError(f"https://{host}:{port} speaks no HTTP: {error!r}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise ConfigError(
            f"https://{host}:{port} shows no authority of a cluster (status {answer.status}): look whether "
            "the address is right"
        )
    return text
