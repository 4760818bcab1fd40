"""The tokens of a remote cluster (`unistream.core.access`)."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from unistream.client.remote.answers import decode
from unistream.client.remote.rest_client import RestClient
from unistream.model.access import (
    CODE_LASTS_MS,
    CodeBody,
    IdentityShown,
    NewCode,
    NewToken,
    Scope,
    TokenBody,
    TokenShown,
    TokensShown,
)


class TokensClient:
    """Makes, lists and revokes tokens; all but `identity` and `login_code` need the scope ADMIN. Raises as
    `RestClient`; AccessDenied: the own token does not let this client do that."""

    def __init__(self, cluster: RestClient) -> None:
        self._cluster = cluster

    def tokens(self) -> list[TokenShown]:
        """All, the newest first."""
        return decode(self._cluster.request("GET", "/unistream/tokens"), TokensShown).tokens

    def create(
        self, name: str, scope: Scope, lasts_ms: int | None = None, *, uses: int | None = None
    ) -> NewToken:
        """A new token. `lasts_ms` None: for ever; `uses`: how many hosts it lets join; None: any number."""
        content = msgspec.json.encode(TokenBody(name=name, scope=scope, lasts_ms=lasts_ms, uses=uses))
        return decode(self._cluster.request("POST", "/unistream/tokens", content=content), NewToken)

    def revoke(self, text: str) -> TokenShown:
        """The token, which is taken no more. `text`: its id, or the beginning of it, or its name."""
        return decode(self._cluster.request("DELETE", f"/unistream/tokens/{quote(text, '')}"), TokenShown)

    def identity(self) -> IdentityShown:
        """Whom the cluster takes this client for."""
        return decode(self._cluster.request("GET", "/unistream/identity"), IdentityShown)

    def login_code(self, lasts_ms: int = CODE_LASTS_MS) -> NewCode:
        """A code for which a browser gets a token with the scope of this client's, once."""
        content = msgspec.json.encode(CodeBody(lasts_ms))
        return decode(self._cluster.request("POST", "/unistream/login-codes", content=content), NewCode)

    def login_link(self, lasts_ms: int = CODE_LASTS_MS) -> str:
        """The address of the cluster's web UI with such a code in its fragment, which no server sees."""
        code = self.login_code(lasts_ms).code
        return f"{self._cluster.url}/ui/#login={code}"
