"""An authority of a test's own, and certificates of it."""
import subprocess

import harness


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60 * harness.PATIENCE)


class Authority:
    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()
        self.file = directory / "ca.pem"
        openssl("req", "-x509", *self.new_key("ca"), "-out", self.file, "-subj", "/CN=tests", "-days",
                "2")

    def new_key(self, name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                self.directory / f"{name}.key")

    def certificate(self, name, alternatives, days=2):
        """Its file, with the key in it."""
        request, signed = self.directory / f"{name}.csr", self.directory / f"{name}.pem"
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternatives}\n")
        openssl("req", *self.new_key(name), "-out", request, "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.directory / "ca.key",
                "-days", str(days), "-extfile", extensions, "-out", signed)
        whole = self.directory / f"{name}.both"
        whole.write_text(signed.read_text() + (self.directory / f"{name}.key").read_text())
        return whole
