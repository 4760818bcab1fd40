"""How a process asks for a certificate: its key never leaves it."""

from __future__ import annotations

from typing import NamedTuple

from unistream.base.secrets import Secret
from unistream.trust.authority import pem_of


class CertificateRequest(NamedTuple):
    """`request`: PEM, for the authority. `key`: PEM, for nobody else."""

    request: str
    key: Secret


def new_request() -> CertificateRequest:
    """A new key, and the request to certify it. It says nothing but the key: the authority chooses the name.

    >>> new_request().request.splitlines()[0]
    '-----BEGIN CERTIFICATE REQUEST-----'
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding

    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return CertificateRequest(request.public_bytes(Encoding.PEM).decode(), Secret(pem_of(key)))
