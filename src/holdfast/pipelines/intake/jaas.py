"""A line of Java's login configuration (`sasl.jaas.config`), as far as it has a meaning here. Pure.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="reader" password="env:KAFKA_PASSWORD";

The line may hold a password, so no message ever shows any of it but names of modules and options.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.pipelines.intake.option_values import OptionError

ENTRY: Final = "sasl.jaas.config"
_SHOWN: Final = f"kafka.{ENTRY}"
# The module's last name: what sasl.mechanism has to begin with.
_MECHANISMS: Final = {"PlainLoginModule": "PLAIN", "ScramLoginModule": "SCRAM-SHA-"}
_INSTEAD: Final = {
    "Krb5LoginModule": "use kafka.sasl.kerberos.keytab and kafka.sasl.kerberos.principal",
    "OAuthBearerLoginModule": "use kafka.sasl.oauthbearer.method=oidc, "
    "kafka.sasl.oauthbearer.client.id and so on",
}
_LINE: Final = re.compile(
    r"\s*([\w.$]+)\s+(\w+)((?:\s+\w+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\s\";]+))*)\s*;\s*"
)
_PAIR: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s\";]+))")
_LINE_LENGTH_MAX: Final = 16_384


def credentials(line: str, mechanism: str | None) -> dict[str, str]:
    """Return `sasl.username` and `sasl.password` of a line for PLAIN or SCRAM.

    OptionError: the line is of another form or module, or does not fit the mechanism.
    """
    found = _LINE.fullmatch(line) if len(line) <= _LINE_LENGTH_MAX else None
    if found is None:
        raise OptionError(
            f'{_SHOWN}: not of the form MODULE required username="..." password="env:NAME";'
        )
    module = found[1].rpartition(".")[2]
    if module not in _MECHANISMS:
        instead = _INSTEAD.get(module, f"known are {' and '.join(_MECHANISMS)}")
        raise OptionError(f"{_SHOWN}: the module {module} has no counterpart here; {instead}")
    if mechanism is None or not mechanism.upper().startswith(_MECHANISMS[module]):
        raise OptionError(
            f"{_SHOWN}: {module} needs kafka.sasl.mechanism, "
            + ("PLAIN" if module == "PlainLoginModule" else "SCRAM-SHA-256 or SCRAM-SHA-512")
        )
    pairs = list(_PAIR.finditer(found[3]))
    options = {pair[1]: _unquoted(pair) for pair in pairs}
    if len(options) < len(pairs):
        raise OptionError(f"{_SHOWN}: one of its options is there twice; leave one of them out")
    for name in ("username", "password"):
        if not options.get(name):
            raise OptionError(f"{_SHOWN}: {name} is missing")
    for name in sorted(options.keys() - {"username", "password"}):
        raise OptionError(f"{_SHOWN}: its option {name} has no counterpart here; leave it out")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _unquoted(pair: re.Match[str]) -> str:
    return pair[3] if pair[2] is None else re.sub(r"\\(.)", r"\1", pair[2])
