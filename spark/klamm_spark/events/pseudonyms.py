"""Pseudonyms of accounts and addresses. They depend on a key: if it is destroyed, no name can be found again.

The recorder replaces names before it writes a line. So the spool, the topic and the lake never have the names, and
seals and proofs are made of the replaced lines. One name has one pseudonym as long as the key is used. So queries,
detections and reports count accounts and addresses as before.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
from base64 import b32encode
from collections.abc import Callable, Collection
from functools import lru_cache, partial
from typing import Final

PRINCIPAL: Final = "principal"
ADDRESS: Final = "address"
KINDS: Final = (PRINCIPAL, ADDRESS)
_NO_PERSON: Final = frozenset({"", "*", "ANONYMOUS", "<default>"})
_NETWORK: Final = bytes.fromhex("fd6b6c616d6d")
"""The IPv6 prefix of pseudonyms of addresses. They are valid addresses, because other tools accept nothing else."""
_ACCOUNT_BYTES: Final = 15
_ADDRESS_BYTES: Final = 10
_KEPT: Final = 1 << 16
_STRING: Final = r'"((?:[^"\\]|\\.)*)"'
_VALUE: Final = rf'(?:,"operation":"[A-Z]+")?,"value":{_STRING}'
_DECIDED: Final = r'"decided_by":"[^"]*","acl_operation":"\w+","acl_pattern_type":"\w+"'
_FIELDS: Final = {
    PRINCIPAL: (
        rf'"(?:principal|attempted_principal|acl_principal|certificate_subject)":{_STRING}',
        rf'\{{"name":"(?:principal|owner|renewer)"{_VALUE}',
        rf'\{{"type":"USER","name":{_STRING}(?:,"operation":"\w+","granted":\w+,{_DECIDED},"acl_name":{_STRING})?',
    ),
    ADDRESS: (
        rf'"(?:client_address|acl_host)":{_STRING}',
        rf'\{{"name":"host"{_VALUE}',
        rf'\{{"type":"IP","name":{_STRING}',
    ),
}
"""The places of names in a line, as regular expressions. Each group is one name."""
_ENTITY: Final = re.compile(rf'\{{"name":"entity"{_VALUE}')
_PARTS: Final = {PRINCIPAL: "user", ADDRESS: "ip"}
"""Names of the parts of a quota's entity, `user=alice,client-id=etl`."""
_SENTENCE: Final = re.compile(rf'"(?:detail|reason)":{_STRING}')
_IN_SENTENCES: Final = {
    # A name may have blanks. It ends before an address, before a number of connections, or at the end of the text.
    PRINCIPAL: r"\bUser[.:](.+?)(?= \(\d+\)| at |$)|'([^']+)'" + r'|\\"(.+?)\\"',
    ADDRESS: r"(?<![\w.:])((?:\d{1,3}\.){3}\d{1,3}|[0-9A-Fa-f]*:[0-9A-Fa-f:]+)(?!\w)",
}
_CLIENT: Final = re.compile(rf'"client_address":{_STRING}')
_CONNECTION: Final = re.compile(r'(?<="connection_id":")[^"]*')


def check_pseudonyms(kinds: Collection[str]) -> str | None:
    """Return an error text for a setting that names kinds, or None if it is valid."""
    wrong = next((kind for kind in kinds if kind not in KINDS), None)
    return None if wrong is None else f'"{wrong}" has no pseudonyms; {" and ".join(KINDS)} have'


class Pseudonyms:
    """Replaces the names of some `KINDS` in lines of events. The recorder calls it."""

    def __init__(self, kinds: Collection[str], key: bytes) -> None:
        """Create it. `key` is the content of the key's file."""
        self._key = hashlib.sha256(b"klamm pseudonyms\n" + key).digest()
        made = {PRINCIPAL: self.account, ADDRESS: self.address}
        self._kinds = [_Kind(kind, lru_cache(_KEPT)(made[kind])) for kind in KINDS if kind in kinds]

    @property
    def fingerprint(self) -> str:
        """Return a text that differs for each key, so that readers can see if the key has changed."""
        return self._hash("fingerprint").hex()

    def of(self, name: str) -> str:
        """Return the pseudonym of an account or an address, whichever `name` is."""
        return self.account(name) if _address(name) is None else self.address(name)

    def account(self, name: str) -> str:
        """Return the pseudonym of a principal or of a user's name. A principal keeps its type."""
        kind, colon, rest = name.partition(":")
        head, name = (f"{kind}:", rest) if colon and kind.isalpha() else ("", name)
        if name not in _NO_PERSON:
            name = f"~{b32encode(self._hash(name)[:_ACCOUNT_BYTES]).decode().lower()}"
        return head + name

    def address(self, text: str) -> str:
        """Return the pseudonym of an address. Other texts, and loopback addresses, stay unchanged."""
        address = _address(text)
        if address is None or address.is_loopback:
            return text
        return str(ipaddress.IPv6Address(_NETWORK + self._hash(str(address))[:_ADDRESS_BYTES]))

    def _hash(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")

    def in_text(self, line: str) -> str:
        """Return a line, or some fields of it in the form of `klamm_spark.observer.encoder`, with pseudonyms."""
        for kind in self._kinds:
            line = kind.in_text(line)
        return line


class _Kind:
    """The replacement of the names of one kind."""

    def __init__(self, kind: str, pseudonym: Callable[[str], str]) -> None:
        self._is_address = kind == ADDRESS
        self._pseudonym = pseudonym
        self._fields = re.compile("|".join(_FIELDS[kind]))
        self._part = re.compile(rf"(?<![^,]){_PARTS[kind]}=(.*?)(?=,(?:user|client-id|ip)=|$)")
        self._in_sentence = re.compile(_IN_SENTENCES[kind])

    def in_text(self, line: str) -> str:
        if self._is_address:
            line = _in_connection(line, self._named)
        line = self._fields.sub(partial(_replaced, self._named), line)
        for field, part in ((_ENTITY, self._part), (_SENTENCE, self._in_sentence)):
            line = field.sub(partial(_replaced, partial(part.sub, partial(_replaced, self._named))), line)
        return line

    def _named(self, text: str) -> str:
        return self._pseudonym(json.loads(f'"{text}"') if "\\" in text else text)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _replaced(pseudonym: Callable[[str], str], match: re.Match[str]) -> str:
    """Return the matched text, with a pseudonym in place of each group."""
    text, at = "", match.start()
    for group in range(1, len(match.groups()) + 1):
        if match[group] is not None:
            text += match.string[at : match.start(group)] + pseudonym(match[group])
            at = match.end(group)
    return text + match.string[at : match.end()]


def _in_connection(line: str, pseudonym: Callable[[str], str]) -> str:
    """Replace the client's address in the id of its connection, which has the form `local:port-remote:port-number`."""
    address = _CLIENT.search(line)
    if address is None:
        return line
    return _CONNECTION.sub(lambda found: found[0].replace(f"-{address[1]}:", f"-{pseudonym(address[1])}:"), line)
