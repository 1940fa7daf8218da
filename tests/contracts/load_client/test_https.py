"""Servers behind https: measured like others, and only when their certificate is good."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from support.measuring import work
from support.scripted_server import good, serving

from tuner.trial.protocol import MeasurementFailed, MeasurementTrouble, measure

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, to make a certificate")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that signs itself, and its key, in one file."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout {file} -out {file}.crt"
    subprocess.run([*words.split(), "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + Path(f"{file}.crt").read_bytes())
    return file


def settings(certificate: Path) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(certificate)
    return found


def test_a_server_with_a_good_certificate_is_measured(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    with serving(good, settings(certificate)) as server:
        alone, four = measure(server.url, "m", work(), seed=1)
    assert alone.valid
    assert four.valid
    assert four.completed == 12


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Path) -> None:
    with serving(good, settings(certificate)) as server, pytest.raises(MeasurementFailed) as caught:
        measure(server.url, "m", work(), seed=1)
    assert caught.value.kind is MeasurementTrouble.DEAD_SERVER
    assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value)
    assert server.bodies == []
