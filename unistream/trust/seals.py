"""What lies where others may read it is sealed with a key that lies elsewhere: AES-256-GCM.

sealed1 <nonce, 12 bytes> <ciphertext with its tag>      the last two in hex
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from unistream.base.errors import ConfigError
from unistream.base.secrets import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEAL_KEY_CHARS_MIN: Final = 32
_MARK: Final = b"sealed1 "
_NONCE_BYTES: Final = 12


class SealKey:
    """A key made of text that a user keeps. Raises ConfigError: it is too short to be no password."""

    def __init__(self, text: Secret) -> None:
        if len(text.reveal().strip()) < SEAL_KEY_CHARS_MIN:
            raise ConfigError(
                "the secret with which a cluster's keys are sealed has "
                f"{SEAL_KEY_CHARS_MIN} characters or more: make one with 'openssl rand -hex 32'"
            )
        self._text = text

    def sealed(self, content: bytes, place: str) -> bytes:
        """What can be read with this key alone, and as that of `place` alone."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _MARK + (nonce + self._cipher().encrypt(nonce, content, place.encode())).hex().encode()

    def opened(self, content: bytes, place: str) -> bytes | None:
        """What was sealed; None: with another key, elsewhere, or it was changed since."""
        from cryptography.exceptions import InvalidTag

        try:
            packed = bytes.fromhex(content.removeprefix(_MARK).decode("ascii"))
            return self._cipher().decrypt(packed[:_NONCE_BYTES], packed[_NONCE_BYTES:], place.encode())
        except (InvalidTag, ValueError):
            return None

    def _cipher(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        kdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"unistream cluster keys")
        return AESGCM(kdf.derive(self._text.reveal().strip().encode()))


def is_sealed(content: bytes) -> bool:
    """Whether the content needs a key to be read."""
    return content.startswith(_MARK)
