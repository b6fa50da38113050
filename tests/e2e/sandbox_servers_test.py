"""Servers that change their user, their root or what they may call before they serve. They have the same answers, end, log and
privileges with the agent as without it. That holds where no daemon is, where one is, and while they are dumped ten times a second.

The lines of sandbox_matrix_test that take a configuration and a client.
"""

import ftplib
import imaplib
import os
import pathlib
import pwd
import re
import shutil
import signal
import smtplib
import socket
import struct
import subprocess
import unittest
import urllib.request

from harness import eventually, free_port
from side_by_side import SideBySideTest, accepts, without_numbers

UNPACKED = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd/unpacked"

NTP_PORT = 123
NOBODY = 65534
MAILS = 5
POSTFIX_FOLDER = pathlib.Path("/usr/lib/postfix")
POSTFIX_MASTER = pathlib.Path("/usr/share/postfix/master.cf.dist")

# Longer than any of them takes to answer on a busy machine.
ANSWER_S = 30


def count_in(folder):
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def ask_name(port, name):
    """The addresses that a server of DNS has for it."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        for _ in range(ANSWER_S):
            client.sendto(struct.pack(">6H", 77, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">2H", 1, 1), ("127.0.0.1", port))
            try:
                reply = client.recv(4096)
            except (TimeoutError, ConnectionRefusedError):
                continue
            count = struct.unpack(">6H", reply[:12])[3]
            return count, socket.inet_ntoa(reply[12 + len(labels) + 4:][12:16]) if count else ""
    return None


class ServersTest(SideBySideTest):

    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.tidy = without_numbers

    def serve(self, command, load, *, prepare=None, dumped=True, ready=None, end=signal.SIGTERM, leaves=()):
        """`load()` asks the server and gives what it answered. Processes with a name in `leaves` end soon after."""

        def during(run):
            run.await_true("it serves", ready or (lambda: accepts(self.port)))
            run.note(load())
            for name in leaves:
                run.await_true(f"{name} has ended", lambda name=name: not run.pids(name))
            run.hold_still()
            run.note(load())
            run.end_main(end)

        self.need(command[0])
        return self.side_by_side(command, during=during, prepare=prepare, dumped=dumped)

    def write(self, name, text):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def owned_by(self, user, *folders):
        entry = pwd.getpwnam(user)
        for folder in folders:
            (self.work / folder).mkdir(parents=True, exist_ok=True)
            os.chown(self.work / folder, entry.pw_uid, entry.pw_gid)

    def answers(self):
        count, _ = ask_name(self.port, "well.test") or (0, "")
        return count

    def test_unbound(self):
        self.need("unbound")

        def prepare():
            self.owned_by("unbound", "root")
            self.write("root/unbound.conf", f"""
server:
  interface: 127.0.0.1
  port: {self.port}
  username: unbound
  chroot: "{self.work}/root"
  directory: "{self.work}/root"
  pidfile: ""
  logfile: ""
  use-syslog: no
  do-daemonize: no
  num-threads: 2
  local-zone: "test." static
  local-data: "well.test. A 10.1.2.3"
remote-control:
  control-enable: no
""")

        end = self.serve(["unbound", "-d", "-p", "-c", self.work / "root/unbound.conf"],
                         lambda: [ask_name(self.port, "well.test") for _ in range(20)], prepare=prepare,
                         ready=self.answers, dumped=False)
        self.assertEqual((1, "10.1.2.3"), end.notes[0][0])

    def test_named_in_its_root(self):
        self.need("named")

        def prepare():
            self.owned_by("bind", "root/var")
            (self.work / "root/dev").mkdir()
            self.write("root/zone", "$TTL 60\n@ SOA ns.test. a.test. 1 60 60 60 60\n@ NS ns.test.\nns A 10.1.2.4\nwell A 10.1.2.3\n")
            self.write("root/named.conf", f"""
options {{ directory "/var"; listen-on port {self.port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no;
  pid-file none; session-keyfile none; dnssec-validation no; managed-keys-directory "/var"; }};
controls {{ }};
logging {{ category default {{ null; }}; category unmatched {{ null; }}; }};
zone "test" {{ type master; file "/zone"; }};
""")

        end = self.serve(["named", "-f", "-n", "2", "-u", "bind", "-t", self.work / "root", "-c", "/named.conf"],
                         lambda: [ask_name(self.port, "well.test") for _ in range(20)], prepare=prepare,
                         ready=self.answers, dumped=False)
        self.assertEqual((1, "10.1.2.3"), end.notes[0][0])

    def test_haproxy_in_its_root(self):

        def prepare():
            (self.work / "empty").mkdir()
            self.write("haproxy.cfg", f"""
global
  chroot {self.work}/empty
  user nobody
  group nogroup
  nbthread 3
defaults
  mode http
  timeout client 20s
  timeout server 20s
  timeout connect 20s
frontend front
  bind 127.0.0.1:{self.port}
  http-request return status 200 content-type text/plain string "well"
""")

        end = self.serve(["haproxy", "-db", "-f", self.work / "haproxy.cfg"], self.get_pages, prepare=prepare, dumped=False)
        self.assertEqual("well", end.notes[0][0])

    def get_pages(self, count=30):
        pages = []
        for _ in range(count):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=ANSWER_S) as reply:
                pages.append(reply.read().decode())
        return pages

    def test_vsftpd(self):
        """Without its list of system calls, which lacks some that later kernels and C libraries need: it ends by itself."""

        def prepare():
            (self.work / "empty").mkdir()
            self.write("files/greeting", "well\n" * 1000)
            self.write("vsftpd.conf", f"""
listen=YES
listen_address=127.0.0.1
listen_port={self.port}
background=NO
anonymous_enable=YES
local_enable=NO
anon_root={self.work}/files
secure_chroot_dir={self.work}/empty
seccomp_sandbox=NO
isolate=YES
isolate_network=YES
xferlog_enable=NO
""")

        end = self.serve(["vsftpd", self.work / "vsftpd.conf"], self.fetch_files, prepare=prepare)
        self.assertEqual(["greeting"], end.notes[0][0])

    def fetch_files(self):
        said = []
        for _ in range(3):
            with ftplib.FTP() as client:
                client.connect("127.0.0.1", self.port, timeout=ANSWER_S)
                client.login()
                said.append(client.nlst())
                lines = []
                client.retrlines("RETR greeting", lines.append)
                said.append(len(lines))
        return said

    def make_keys(self):
        (self.dir / "keys").mkdir(exist_ok=True)
        for name in ("host", "client"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.dir / "keys" / name], check=True)
        shutil.copy(self.dir / "keys/client.pub", self.dir / "keys/allowed")

    def log_in(self, *command):
        """Three times; (end, output) of each."""
        said = []
        for _ in range(3):
            done = subprocess.run(["ssh", "-F", "none", "-i", self.dir / "keys/client", "-p", str(self.port), "-o", "BatchMode=yes",
                                   "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={self.dir}/known", "-o",
                                   "LogLevel=ERROR", "root@127.0.0.1", *command], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=120, check=False)
            said.append((done.returncode, done.stdout, without_numbers(done.stderr)))
        return said

    def test_sshd(self):
        """Not compared: how it met the end of the connection by which the test found it ready."""
        self.need("sshd", "ssh", "ssh-keygen")
        self.tidy = lambda text: "".join(line for line in without_numbers(text).splitlines(True)
                                         if not re.match(r"kex_exchange_identification|Connection (closed|reset)", line))
        self.make_keys()
        os.makedirs("/run/sshd", exist_ok=True)

        def prepare():
            self.write("sshd_config", f"""
ListenAddress 127.0.0.1:{self.port}
HostKey {self.dir}/keys/host
AuthorizedKeysFile {self.dir}/keys/allowed
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
""")

        end = self.serve([shutil.which("sshd", path="/usr/sbin:/sbin"), "-D", "-e", "-f", self.work / "sshd_config"],
                         lambda: self.log_in("echo well; id -u; seq 3000 | wc -c; exit 5"), prepare=prepare)
        self.assertEqual((5, "well\n0\n13893\n"), end.notes[0][0][:2], end)

    def test_dropbear(self):
        """It refuses: a key that is allowed would have to lie in the home of a user of this machine."""
        self.need("dropbear", "dropbearkey", "ssh", "ssh-keygen")
        self.make_keys()
        subprocess.run(["dropbearkey", "-t", "ed25519", "-f", self.dir / "keys/dropbear"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        end = self.serve(["dropbear", "-F", "-E", "-s", "-r", self.dir / "keys/dropbear", "-P", "", "-p",
                          f"127.0.0.1:{self.port}"], lambda: self.log_in("true"))
        self.assertEqual(255, end.notes[0][0][0], end)

    def test_dovecot(self):
        """Not compared: ids of sessions, and how it met the connections by which the test found it ready."""
        self.need("dovecot")

        def tidy(text):
            text = re.sub(r"session=<[^>]*>|(?<=\)<N>)<[^>]*>|, mpid=N", "", without_numbers(text))
            return "".join(line for line in text.splitlines(True) if "Connection closed" not in line)

        self.tidy = tidy

        def prepare():
            self.owned_by("nobody", "mail")
            self.write("dovecot.conf", f"""
base_dir = {self.work}/run
state_dir = {self.work}/state
instance_name = test
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
log_path = /dev/stderr
first_valid_uid = 1
mail_location = maildir:{self.work}/mail/%u
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={self.work}/mail/%u
}}
service imap-login {{
  inet_listener imap {{
    port = {self.port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
""")

        end = self.serve(["dovecot", "-F", "-c", self.work / "dovecot.conf"], self.use_mail, prepare=prepare, dumped=True,
                         leaves=("imap",))
        self.assertEqual("OK", end.notes[0][0])

    def use_mail(self):
        said = []
        for user in ("one", "two"):
            client = imaplib.IMAP4("127.0.0.1", self.port, timeout=ANSWER_S)
            client.login(user, "secret")
            for number in range(5):
                said.append(client.append("INBOX", "", None, f"Subject: mail {number}\r\n\r\n{'well ' * 100}\r\n".encode())[0])
            client.select("INBOX")
            said.append(client.search(None, "SUBJECT", '"mail 3"'))
            said.append(client.fetch("1:*", "(BODY[HEADER.FIELDS (SUBJECT)])")[0])
            client.logout()
        return said

    def test_postfix(self):
        """Its first process hands nothing of its environment on that it is not told to. It says nothing but to a log that is not
        there."""
        self.need("postfix")

        def prepare():
            self.owned_by("postfix", "data")
            self.owned_by("nobody", "mail")
            (self.work / "queue").mkdir()
            self.write("main.cf", f"""
compatibility_level = 3.6
import_environment = MAIL_CONFIG TZ LD_PRELOAD STACKD_DIR
export_environment = TZ LD_PRELOAD STACKD_DIR
queue_directory = {self.work}/queue
data_directory = {self.work}/data
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = host.test
mydestination =
alias_maps =
alias_database =
biff = no
virtual_mailbox_domains = test
virtual_mailbox_base = {self.work}/mail
virtual_mailbox_maps = static:box/
virtual_uid_maps = static:{NOBODY}
virtual_gid_maps = static:{NOBODY}
virtual_minimum_uid = 1000
""")
            master = POSTFIX_MASTER.read_text()
            # As it is delivered, with most of its processes in the queue's folder as their root.
            self.write("master.cf", re.sub(r"(?m)^smtp      inet", f"127.0.0.1:{self.port} inet", master))
            subprocess.run(["postfix", "-c", self.work, "check"], check=True)

        end = self.serve([POSTFIX_FOLDER / "sbin/master", "-c", self.work, "-d"], self.send_mail, prepare=prepare, dumped=True)
        self.assertEqual([5, 10], end.notes)

    def send_mail(self):
        """How many mails have come, once these have."""
        box = self.work / "mail/box/new"
        before = count_in(box)
        with smtplib.SMTP("127.0.0.1", self.port, timeout=ANSWER_S) as client:
            for number in range(MAILS):
                client.sendmail("one@test", ["two@test"], f"Subject: mail {number}\r\n\r\n{'well ' * 100}\r\n")
        eventually("all mails have come", lambda: count_in(box) == before + MAILS)
        return before + MAILS

    def test_chrony(self):
        """Under its own list of system calls."""
        chronyd = shutil.which("chronyd", path="/usr/sbin") or UNPACKED / "chrony/usr/sbin/chronyd"
        self.need(chronyd)

        def prepare():
            self.write("chrony.conf", f"""
port {self.port}
bindaddress 127.0.0.1
allow 127.0.0.1
local stratum 8
cmdport 0
pidfile {self.work}/pid
user nobody
""")

        self.serve([chronyd, "-x", "-d", "-F", "1", "-f", self.work / "chrony.conf"], self.ask_time, prepare=prepare,
                   ready=self.ask_time, dumped=False)

    def test_ntpsec(self):
        """It can serve at no other port. It sets no clock."""
        ntpd = UNPACKED / "ntpsec/usr/sbin/ntpd"
        self.need(ntpd)
        self.port = NTP_PORT
        # Not compared: what it says of the machine.
        self.tidy = lambda text: ""

        def prepare():
            self.write("ntp.conf", "disable ntp\ninterface ignore wildcard\ninterface listen 127.0.0.1\nrefclock local\n")

        self.serve([ntpd, "-n", "-u", "nobody:nogroup", "-c", self.work / "ntp.conf"], self.ask_time, prepare=prepare,
                   ready=lambda: self.ask_time() is not None, dumped=True)

    def ask_time(self):
        """The stratum that it answers with."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(1)
            for _ in range(ANSWER_S):
                client.sendto(b"\x23" + bytes(47), ("127.0.0.1", self.port))
                try:
                    return client.recv(128)[1]
                except (TimeoutError, ConnectionRefusedError):
                    continue
        return None


if __name__ == "__main__":
    unittest.main()
