"""What is taken for a secret, by its name and inside texts, and what is not."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins import PluginKind, Registry
from headrace.sdk.config import ConfigType
from headrace.sdk.sensitive import is_sensitive, masked, secrets_in

HIDDEN = "[hidden]"
_HIDDEN = (
    "password passwd pwd pass passphrase secret token credential credentials apikey api.key "
    "access.key private.key account.key ssh.key sshkey pin sas cookie cookies bearer signature "
    "sig authorization auth.header http.headers user.info sasl.jaas.config"
)
_ORDINARY = (
    "key.converter pinned passenger compass tokens.max max.tokens primary.key foreign.key "
    "partition.key message.key.columns key.fields pass.through bypass trespass tokenizer "
    "tokenize secretary spin pinning monkey keyboard author authority header.converter headers "
    "basic.auth.credentials.source token.file password.file ssl.key.location auth.type "
    "cookie.policy signature.algorithm topics file path passthrough surpass database topic "
    "password.required encompass passive mechanism sassafras bearing pincode.length"
)
SECRET_WORDS, ORDINARY = _HIDDEN.split(), _ORDINARY.split()
PREFIXES = st.sampled_from(["", "db", "my", "connection", "ssl", "consumer.override", "x1"])


_FOUND = (
    "passphrase ssl.key.passphrase pass db.pwd Authorization auth.header http.headers bearer "
    "cookie sas sshkey pin AccountKey PGPASSWORD X-Api-Key X-Amz-Signature dbPass DB_PWD2 "
    "smtp_pass keypass sharedAccessKey secret.base64 token.value db.cred creds wifi.psk hmac "
    "ssl.keystore.pem totp wallet.mnemonic"
)


@pytest.mark.parametrize("name", _FOUND.split())
def test_names_that_were_met_are_known(name: str) -> None:
    assert is_sensitive(name)


@given(PREFIXES, st.sampled_from(SECRET_WORDS), st.sampled_from(["dots", "snake", "camel"]))
def test_a_secret_is_one_under_any_prefix_and_spelling(
    prefix: str, word: str, style: str
) -> None:
    words = [*prefix.split("."), *word.split(".")] if prefix else word.split(".")
    name = {
        "dots": ".".join(words),
        "snake": "_".join(words).upper(),
        "camel": words[0] + "".join(each.title() for each in words[1:]),
    }[style]
    assert is_sensitive(name), name


@given(PREFIXES, st.sampled_from(ORDINARY))
def test_an_ordinary_key_is_none_under_any_prefix(prefix: str, name: str) -> None:
    full = f"{prefix}.{name}" if prefix and not name.startswith("max.") else name
    assert not is_sensitive(full), full


def test_keys_of_plugins_that_sound_secret_are_passwords() -> None:
    plain = {
        (plugin.name, key.name)
        for kind in PluginKind
        for plugin in Registry().all_of(kind)
        for key in plugin.config_def().keys.values()
        if is_sensitive(key.name) and key.type is not ConfigType.PASSWORD
    }
    assert plain == set()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:Qq@123456@h", f"postgresql://u:{HIDDEN}@h"),
        ("postgres://u:a/b@h/db", f"postgres://u:{HIDDEN}@h/db"),
        ("redis://:pw@h:1/0", f"redis://:{HIDDEN}@h:1/0"),
        ("http://a:b@h,http://c:d@i", f"http://a:{HIDDEN}@h,http://c:{HIDDEN}@i"),
        ("mongodb://u:p@h1:1,h2:2/db", f"mongodb://u:{HIDDEN}@h1:1,h2:2/db"),
        ("https://h/x?api_key=abc&a=b", f"https://h/x?api_key={HIDDEN}&a=b"),
        ("https://h/c?sv=1&sig=a%2B&x=1", f"https://h/c?sv=1&sig={HIDDEN}&x=1"),
        ("url=https://h?password=x", f"url=https://h?password={HIDDEN}"),
        ("jdbc:oracle:thin:scott/PW@//h:1/x", f"jdbc:oracle:thin:scott/{HIDDEN}@//h:1/x"),
        ("jdbc:sqlserver://h:1;password=b;x=y", f"jdbc:sqlserver://h:1;password={HIDDEN};x=y"),
        ("AccountName=a;AccountKey=b==;S=c", f"AccountName=a;AccountKey={HIDDEN};S=c"),
        (
            'required username="a" password="b c";',
            f'required username="a" password="{HIDDEN}";',
        ),
        ("Authorization: Bearer abc, Accept: x", f"Authorization: {HIDDEN}, Accept: x"),
        ("sent Bearer abc.DEF-0123", f"sent Bearer {HIDDEN}"),
        ("Cookie: a=b; c=d", f"Cookie: {HIDDEN}"),
        ('{"password": "abc", "a": "b"}', f'{{"password": "{HIDDEN}", "a": "b"}}'),
        ("password=a,b", f"password={HIDDEN}"),
        ("password=a,user=b", f"password={HIDDEN},user=b"),
        (
            "x -----BEGIN RSA PRIVATE KEY-----\nMII=\n-----END RSA PRIVATE KEY----- y",
            f"x -----BEGIN RSA PRIVATE KEY-----{HIDDEN}-----END RSA PRIVATE KEY----- y",
        ),
        ("-----BEGIN PRIVATE KEY-----\\nMII", f"-----BEGIN PRIVATE KEY-----{HIDDEN}"),
        ("https://ghp_0123456789abcdef@h/x.git", f"https://{HIDDEN}@h/x.git"),
        ("psql --password 'a b' --user c", f"psql --password '{HIDDEN}' --user c"),
        ("--db-token\ta --x b", f"--db-token\t{HIDDEN} --x b"),
        ("<s:password n='1'>a</s:password>", f"<s:password n='1'>{HIDDEN}</s:password>"),
        ("h?u=x%3Fpwd%3Da%26b%3Dc", f"h?u=x%3Fpwd%3D{HIDDEN}%26b%3Dc"),
        ("password%3Da&b=c", f"password%3D{HIDDEN}&b=c"),
    ],
)
def test_secrets_inside_texts_are_hidden(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "http://db:5432/a@b",
        "http://[::1]:8080/a@b",
        "jdbc:oracle:thin:@//h:1521/x",
        "localhost:9092,secret-service:9092",
        "password:string,token:int8",
        "select * from t where pin = 5 and a.key = b.key",
        "the token is expired",
        "Basic authentication is wanted",
        "tokens.max=5&key.converter=x",
        "https://user@host/path",
        "postgresql://integration_reader@host/db",
        "https://host/a-path-that-is-quite-long@2",
        "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----",
        "--password-file /run/x --token --user me",
        "a --password",
        "<passwords-count>3</passwords-count> a<b>c</b>",
        "h?u=topic%3Da",
    ],
)
def test_ordinary_texts_stay_as_they_are(text: str) -> None:
    assert masked(text) == text


SECRETS = st.text("abcXYZ019_-.@!$*+~", min_size=1).filter(lambda text: text != HIDDEN)


@given(
    SECRETS, st.sampled_from(["", "u", "first.last"]), st.sampled_from(["", "/db", ":1/x?a=b"])
)
def test_no_password_of_an_address_is_shown(secret: str, user: str, rest: str) -> None:
    text = f"postgresql+x://{user}:{secret}@host{rest}"
    assert masked(text) == f"postgresql+x://{user}:{HIDDEN}@host{rest}"
    assert secrets_in(text) == [secret]


@given(st.text("abcXYZ019_-.!*+~%/", min_size=1), st.sampled_from(SECRET_WORDS))
def test_no_parameter_of_an_address_that_sounds_secret_is_shown(secret: str, name: str) -> None:
    shown = masked(f"https://host/p?a=b&{name}={secret}&c=d")
    assert shown == f"https://host/p?a=b&{name}={HIDDEN}&c=d"


def test_references_may_be_shown_and_what_is_around_them_not() -> None:
    def shows(text: str) -> bool:
        return text == "${env:X}"

    text = "x://me:${env:X}@db?password=${env:X}&token=a${env:X}"
    assert masked(text, shows) == f"x://me:${{env:X}}@db?password=${{env:X}}&token={HIDDEN}"


@pytest.mark.parametrize(
    "part",
    ["a=", "a.", "${", "${a}", "password=", "://a:", "://a:${a}", ",a", "password=x,", " ",
     "jdbc:oracle:thin:a/", "jdbc:oracle:thin:", "cookie: ", "x-", '"password": "', "bearer ",
     "-----BEGIN PRIVATE KEY-----", "--password ", "--a", "<password>", "<a ", "</", "%3D",
     "password%3D", "https://", "https://a", "%3Da", "%"],
)  # fmt: skip
def test_hostile_texts_take_no_longer_than_others(part: str) -> None:
    def seconds(size: int) -> float:
        begun = time.process_time()
        masked(f"://u:password={part * (size // len(part))}")
        return time.process_time() - begun

    assert seconds(60_000) < 5
