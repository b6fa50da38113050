"""Certificate authorities and certificates, made by openssl."""

import pathlib
import subprocess
import tempfile


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


class Certificate:
    def __init__(self, folder, name):
        self.key = pathlib.Path(folder) / f"{name}.key"
        self.crt = pathlib.Path(folder) / f"{name}.crt"


class Authority:
    def __init__(self, folder, name):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.own = Certificate(self.folder, name)
        openssl("req", "-x509", *self.new_key(self.own), "-out", self.own.crt, "-days", 2, "-subj", f"/CN={name}")

    @staticmethod
    def new_key(certificate):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", certificate.key]

    def issue(self, name, alternative_names="", days=1):
        """With `days` below 0 it has expired."""
        made = Certificate(self.folder, name)
        with tempfile.NamedTemporaryFile("w") as extensions, tempfile.NamedTemporaryFile() as request:
            if alternative_names:
                extensions.write(f"subjectAltName={alternative_names}\n")
            extensions.flush()
            openssl("req", *self.new_key(made), "-out", request.name, "-subj", f"/CN={name}")
            openssl("x509", "-req", "-in", request.name, "-CA", self.own.crt, "-CAkey", self.own.key, "-set_serial",
                    abs(hash((name, days))) + 1, "-days", days, "-extfile", extensions.name, "-out", made.crt)
        return made
