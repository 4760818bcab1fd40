"""What an authority issues, and for whom."""

from __future__ import annotations

import datetime

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from tests.support.authorities import DAY_MS, NOW_MS, authority, other_authority
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.secrets import HIDDEN, Secret
from unistream.model.credentials import Credentials, PeerAddress, certified_name, name_in
from unistream.trust.authority import Authority, fingerprint_of, new_authority, rotated
from unistream.trust.pinning import split
from unistream.trust.requests import new_request

AT = datetime.datetime.fromtimestamp(NOW_MS / 1000, datetime.UTC)


def parsed(credentials: Credentials) -> x509.Certificate:
    return x509.load_pem_x509_certificate(credentials.certificate.encode())


def is_accepted(credentials: Credentials, roots: str, name: str, days: float = 0.0) -> bool:
    """By a verifier that shares no code with the one of the servers."""
    store = Store(x509.load_pem_x509_certificates(roots.encode()))
    at = AT + datetime.timedelta(days=days)
    verifier = PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(parsed(credentials), [])
    except VerificationError:
        return False
    return True


def test_a_certificate_is_accepted_for_its_name_its_time_and_its_authority() -> None:
    made = authority().issue("tm-1", now_ms=NOW_MS, lasts_ms=DAY_MS)
    name = certified_name("tm-1")
    assert is_accepted(made, authority().roots(NOW_MS), name)
    assert is_accepted(made, authority().roots(NOW_MS), name, days=-1 / 30), "clocks differ"
    assert not is_accepted(made, authority().roots(NOW_MS), certified_name("tm-2"))
    assert not is_accepted(made, other_authority().roots(NOW_MS), name)
    assert not is_accepted(made, authority().roots(NOW_MS), name, days=1.01)
    assert not is_accepted(made, authority().roots(NOW_MS), name, days=-1)
    assert made.until_ms == pytest.approx(NOW_MS + DAY_MS, abs=1_000)


def test_hosts_may_be_names_and_addresses() -> None:
    made = authority().issue(
        "", now_ms=NOW_MS, lasts_ms=DAY_MS, hosts=["jobs.example.com", "10.0.0.7", "::1"]
    )
    names = parsed(made).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["jobs.example.com"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "::1"]
    assert name_in("jobs.example.com") == ""


def test_what_is_issued_issues_nothing() -> None:
    made = authority().issue("tm-1", now_ms=NOW_MS, lasts_ms=DAY_MS)
    limits = parsed(made).extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not limits.ca


def test_a_certificate_does_not_outlive_its_authority() -> None:
    made = authority().issue("tm-1", now_ms=NOW_MS, lasts_ms=100 * 365 * DAY_MS)
    root = x509.load_pem_x509_certificate(authority().roots(NOW_MS).encode())
    assert parsed(made).not_valid_after_utc == root.not_valid_after_utc


def test_a_key_is_shown_nowhere() -> None:
    made = authority().issue("tm-1", now_ms=NOW_MS, lasts_ms=DAY_MS)
    assert "PRIVATE KEY" not in repr(made)
    assert HIDDEN in repr(made)


# --- another authority ----------------------------------------------------------------------------


KEEP_MS = 30 * DAY_MS


@pytest.fixture
def former() -> Authority:
    return Authority(new_authority("c", NOW_MS))


@pytest.fixture
def later(former: Authority) -> Authority:
    return Authority(rotated(former, "c", now_ms=NOW_MS, keep_ms=KEEP_MS))


def is_chain_accepted(credentials: Credentials, roots: str, name: str) -> bool:
    leaf, *between = x509.load_pem_x509_certificates(credentials.certificate.encode())
    store = Store(x509.load_pem_x509_certificates(roots.encode()))
    verifier = PolicyBuilder().store(store).time(AT).build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(leaf, between)
    except VerificationError:
        return False
    return True


def test_a_new_authority_is_believed_by_who_knows_the_former_one(former: Authority, later: Authority) -> None:
    made, name = later.issue("tm-1", now_ms=NOW_MS, lasts_ms=DAY_MS), certified_name("tm-1")
    for roots in (former.roots(NOW_MS), later.record.certificate, later.roots(NOW_MS)):
        assert is_chain_accepted(made, roots, name)
    assert not is_chain_accepted(made, other_authority().roots(NOW_MS), name)


def test_what_the_former_one_has_issued_is_believed_for_a_while(former: Authority, later: Authority) -> None:
    made, name = former.issue("tm-1", now_ms=NOW_MS, lasts_ms=DAY_MS), certified_name("tm-1")
    assert is_chain_accepted(made, later.roots(NOW_MS + KEEP_MS - 1), name)
    assert not is_chain_accepted(made, later.roots(NOW_MS + KEEP_MS), name)


def test_authorities_are_forgotten_in_time(later: Authority) -> None:
    soon = Authority(rotated(later, "c", now_ms=NOW_MS + DAY_MS, keep_ms=KEEP_MS))
    late = Authority(rotated(later, "c", now_ms=NOW_MS + 2 * KEEP_MS, keep_ms=KEEP_MS))
    assert (len(split(soon.roots(NOW_MS + DAY_MS))), len(late.record.former)) == (3, 1)


def test_a_rotated_authority_is_the_same_after_it_was_stored(later: Authority) -> None:
    again = msgspec.json.decode(msgspec.json.encode(later.record), type=type(later.record))
    assert again == later.record
    assert HIDDEN in repr(later.record)


# --- requests -------------------------------------------------------------------------------------


def test_of_a_request_nothing_but_the_key_counts() -> None:
    """Who asks for another name, or for an authority, gets the name that the cluster chooses."""
    key = ec.generate_private_key(ec.SECP256R1())
    wanted = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "jobmanager")]))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(certified_name("jobmanager"))]), critical=True
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = wanted.public_bytes(Encoding.PEM).decode()
    made = authority().sign(text, "tm-1", now_ms=NOW_MS, lasts_ms=DAY_MS)
    certificate = parsed(made)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [certified_name("tm-1")]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert certificate.public_key() == key.public_key()
    assert made.key.reveal() == ""


def test_the_key_of_a_request_fits_its_certificate() -> None:
    asked = new_request()
    made = authority().sign(asked.request, "tm-1", now_ms=NOW_MS, lasts_ms=DAY_MS)
    assert is_accepted(made, authority().roots(NOW_MS), certified_name("tm-1"))
    assert "PRIVATE KEY" in asked.key.reveal()
    assert "PRIVATE KEY" not in asked.request


def rsa_request() -> str:
    key = rsa.generate_private_key(65537, 2048)
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def forged_request() -> str:
    """Its last bytes, of the signature, are changed."""
    lines = new_request().request.splitlines()
    lines[-2] = lines[-2][:-4] + ("AAA=" if not lines[-2].endswith("AAA=") else "BBB=")
    return "\n".join(lines)


@pytest.mark.parametrize("make", [rsa_request, forged_request, lambda: "no request", lambda: ""])
def test_what_is_no_request_is_not_signed(make: object) -> None:
    with pytest.raises(ConfigError, match="a certificate"):
        authority().sign(make(), "tm-1", now_ms=NOW_MS, lasts_ms=DAY_MS)  # type: ignore[operator]


# --- what is kept ---------------------------------------------------------------------------------


def test_an_authority_is_the_same_after_it_was_stored() -> None:
    record = new_authority("x" * 200, NOW_MS)
    again = Authority(msgspec.json.decode(msgspec.json.encode(record), type=type(record)))
    assert again.roots(NOW_MS) == Authority(record).roots(NOW_MS)
    assert fingerprint_of(again.roots(NOW_MS)) == again.fingerprint
    assert len(again.fingerprint) == 64


def test_a_key_of_another_authority_is_refused() -> None:
    one, other = new_authority("a", NOW_MS), new_authority("b", NOW_MS)
    with pytest.raises(CorruptSnapshot, match="not that of its certificate"):
        Authority(msgspec.structs.replace(one, key=other.key))
    with pytest.raises(CorruptSnapshot, match="no authority"):
        Authority(msgspec.structs.replace(one, key=Secret("no key")))


def test_several_roots_are_divided() -> None:
    both = authority().roots(NOW_MS) + other_authority().roots(NOW_MS)
    assert [fingerprint_of(one) for one in split(both)] == [
        authority().fingerprint,
        other_authority().fingerprint,
    ]


@pytest.mark.parametrize(
    "address",
    [
        PeerAddress("grpc+tls://10.0.0.7:1", "tm-1"),
        PeerAddress("grpc+tls://[::1]:1", "jobmanager", "/tmp/x/flight.sock"),
        PeerAddress("grpc+unix:///tmp/x"),
        PeerAddress("grpc+tcp://127.0.0.1:6123"),
    ],
)
def test_an_address_is_the_same_as_text(address: PeerAddress) -> None:
    assert PeerAddress.parse(str(address)) == address


def test_an_encrypted_address_says_who_is_expected() -> None:
    with pytest.raises(ConfigError, match="does not say who"):
        PeerAddress.parse("grpc+tls://10.0.0.7:1")
