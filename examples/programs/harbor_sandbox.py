"""Containers of tasks of the Harbor format: those of Docker, or directories under bubblewrap (docs/src/harbor.md).

What runs inside is written by others. This side follows no link that it has made, writes to nothing that it may change, and reads
bounded amounts.
"""

import hashlib
import os
import resource
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harbor_task import read_file

# Most bytes of output that are kept of a command.
MOST_OUTPUT = 1 << 16
# Directories and files of this machine that bubblewrap shows, read-only.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
SYSTEM_FILES = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/certs", "/etc/ca-certificates")
# First parts of paths that a task cannot have files in.
RESERVED = {"usr", "bin", "sbin", "lib", "lib64", "etc", "proc", "sys", "dev", "tests", "logs", "solution"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class SandboxError(Exception):
    """A container that cannot be made. The episode is unscored."""


@dataclass
class Ended:
    """A command that has ended."""

    code: int
    text: str
    late: bool


def run_bounded(command, seconds, limits=None):
    """Runs a command of this machine for some seconds at most, and keeps the beginning of what it prints."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=limits,
    )
    kept = bytearray()

    def drain():
        while part := child.stdout.read1(1 << 16):
            kept.extend(part[: MOST_OUTPUT - len(kept)])

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    late = False
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        late = True
    finally:  # also if a signal ends this worker
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    child.wait()
    reader.join(10)
    if not reader.is_alive():
        child.stdout.close()
    return Ended(child.returncode, kept.decode(errors="replace"), late)


def copy_tree(source, to):
    """Copies a file, a link or a directory. Links stay links; other kinds of files are refused."""
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), to)
    elif stat.S_ISREG(mode):
        shutil.copyfile(source, to, follow_symlinks=False)
        os.chmod(to, stat.S_IMODE(mode) & 0o777 | 0o600)
    elif stat.S_ISDIR(mode):
        os.makedirs(to, exist_ok=True)
        for name in sorted(os.listdir(source)):
            if os.path.lexists(to / name) and not is_directory(to / name):
                os.unlink(to / name)
            copy_tree(source / name, to / name)
    else:
        raise SandboxError(f"{source} is neither a file, a link nor a directory")


def is_directory(path):
    """Returns true for a directory that is no link."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def make_executable(path):
    """Lets a script run. A link stays what it is."""
    if not os.path.islink(path):
        os.chmod(path, 0o755)


def read_dockerfile(text):
    """Yields the instructions of a Dockerfile as pairs of a name in upper case and its rest."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name:
            yield name.upper(), rest.strip()


class BwrapSandbox:
    """A container of bubblewrap: directories of the episode over the programs of this machine, without a network.

    Each command is a container of its own over the same directories. No program outlives it.
    """

    def __init__(self, task, network):
        self.task, self.network, self.testing, self.solving = task, network and task.public, False, False
        self.env, self.workdir = dict(task.env), PurePosixPath(task.workdir or "/app")
        self.dir = Path(tempfile.mkdtemp(prefix="maverl-harbor-"))
        try:
            for name in ["root", "root/tmp", "root/root", "etc", "tests", "solution", "verifier"]:
                (self.dir / name).mkdir()
            (self.dir / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
            (self.dir / "etc/group").write_text("root:x:0:\n")
            self.build()
        except (OSError, ValueError, SandboxError) as error:
            self.close()
            raise SandboxError(f"{task.name}: {error}") from None

    def build(self):
        """Does what a Dockerfile can say without its image: files, variables and a directory."""
        task, stages = self.task, 0
        for user in [task.user, task.verifier_user]:
            if user not in (None, "root", "0"):
                raise SandboxError(f"the user {user!r} needs Docker; without it every program is root of its container")
        dockerfile = task.path / "environment/Dockerfile"
        if not os.path.lexists(dockerfile):
            raise SandboxError(f"the image {task.image!r} needs Docker")
        workdir = PurePosixPath("/")
        for name, rest in read_dockerfile(read_file(dockerfile)):
            if name == "FROM":
                stages += 1
                if stages > 1:
                    raise SandboxError("a Dockerfile of several stages needs Docker")
            elif name == "WORKDIR":
                workdir = workdir / rest.strip("\"'")
                self.place(workdir, True)
            elif name in ("COPY", "ADD"):
                self.copy(rest, workdir)
            elif name == "ENV":
                pairs = [pair.partition("=") for pair in shlex.split(rest)]
                if not all(equals for _, equals, _ in pairs):
                    raise SandboxError(f"`ENV {rest}`: write NAME=VALUE")
                self.env.update({key: value for key, _, value in pairs})
            elif name not in ("CMD", "ENTRYPOINT", "LABEL", "EXPOSE", "MAINTAINER"):
                raise SandboxError(f"`{name} {rest[:60]}` needs Docker; without it only files, variables and WORKDIR are built")
        if task.workdir is None and str(workdir) != "/":
            self.workdir = workdir
        self.place(self.workdir, True)

    def place(self, path, directory):
        """Returns the place of a path of the container in the episode's directories, and makes the directories above it."""
        path = PurePosixPath(os.path.normpath(path))
        if not path.is_absolute() or len(path.parts) < 2 or path.parts[1] in RESERVED:
            raise SandboxError(f"a task cannot have files at {str(path)!r} without Docker")
        place = self.dir / "root"
        parts = path.parts[1:] if directory else path.parts[1:-1]
        for part in parts:
            place = place / part
            if os.path.lexists(place) and not is_directory(place):
                raise SandboxError(f"{str(path)!r} leads through a file or a link")
            place.mkdir(exist_ok=True)
        return place if directory else place / path.name

    def copy(self, rest, workdir):
        """Copies files of the task, as COPY does."""
        if rest.startswith("[") or "<<" in rest:
            raise SandboxError(f"`COPY {rest[:60]}` needs Docker; write COPY SOURCE.. TO")
        words = [word for word in shlex.split(rest) if not word.startswith("--")]
        if len(words) < 2 or len(words) < len(shlex.split(rest)):
            raise SandboxError(f"`COPY {rest[:60]}` needs Docker; write COPY SOURCE.. TO")
        context = (self.task.path / "environment").resolve()
        to, into = workdir / words[-1], words[-1].endswith(("/", ".")) or len(words) > 2
        for word in words[:-1]:
            source = context / word.lstrip("/")
            real = source.parent.resolve() / source.name if word.strip("./") else context
            if not real.is_relative_to(context) or not os.path.lexists(real):
                raise SandboxError(f"`COPY {word}`: there is no such file in `environment`")
            if is_directory(real):
                self.copy_into(real, self.place(to, True))
            else:
                place = self.place(to / source.name if into else to, False)
                if os.path.lexists(place):
                    raise SandboxError(f"`COPY {word}`: {str(to)!r} is there already")
                copy_tree(real, place)

    def copy_into(self, source, place):
        """Copies what is in a directory; what is there already must be directories."""
        for name in sorted(os.listdir(source)):
            if os.path.lexists(place / name) and not (is_directory(place / name) and is_directory(source / name)):
                raise SandboxError(f"{name!r} is copied twice")
            if is_directory(source / name):
                (place / name).mkdir(exist_ok=True)
                self.copy_into(source / name, place / name)
            else:
                copy_tree(source / name, place / name)

    def arguments(self, env):
        """Returns the arguments of bubblewrap."""
        new = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
        made = ["bwrap", "--die-with-parent", "--new-session", *new, "--uid", "0", "--gid", "0", "--cap-drop", "ALL"]
        made += [] if self.network else ["--unshare-net"]
        for path in SYSTEM + SYSTEM_FILES + (("/etc/resolv.conf", "/etc/hosts") if self.network else ()):
            made += ["--ro-bind-try", path, path]
        for name in ["passwd", "group"]:
            made += ["--ro-bind", str(self.dir / "etc" / name), f"/etc/{name}"]
        made += ["--proc", "/proc", "--dev", "/dev"]
        for name in sorted(os.listdir(self.dir / "root")):
            made += ["--bind", str(self.dir / "root" / name), f"/{name}"]
        if self.testing:
            made += ["--bind", str(self.dir / "tests"), "/tests", "--tmpfs", "/logs"]
            made += ["--bind", str(self.dir / "verifier"), "/logs/verifier"]
        if self.solving:
            made += ["--bind", str(self.dir / "solution"), "/solution"]
        made += ["--remount-ro", "/", "--clearenv"]
        for name, value in {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **self.env, **env}.items():
            made += ["--setenv", name, value]
        return [*made, "--chdir", str(self.workdir), "--"]

    def limits(self):
        """Bounds what each program may take; called in the new process."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for kind, mib in [(resource.RLIMIT_AS, self.task.memory_mb), (resource.RLIMIT_FSIZE, self.task.storage_mb or 4096)]:
            if mib is not None:
                resource.setrlimit(kind, (int(mib) << 20, int(mib) << 20))

    def run(self, command, seconds, env=None, output=None):
        """Runs a command in the container; with `output`, what it prints goes to a file of the container."""
        if output is not None:
            command = ["sh", "-c", 'out=$1; shift; exec "$@" > "$out" 2>&1', "sh", output, *command]
        return run_bounded([*self.arguments(env or {}), *command], seconds, self.limits)

    def add_solution(self):
        self.solving = True
        copy_tree(self.task.path / "solution", self.dir / "solution")
        make_executable(self.dir / "solution/solve.sh")

    def begin_tests(self):
        """Shows the tests, and a new directory for their reward."""
        self.solving, self.testing = False, True
        copy_tree(self.task.path / "tests", self.dir / "tests")
        make_executable(self.dir / "tests/test.sh")

    def reward_file(self, name):
        # The directory is a mount of the container, so no program there can put a link in its place.
        return self.dir / "verifier" / name

    def close(self):
        def retry(function, path, _):
            os.chmod(os.path.dirname(path), 0o700)
            if is_directory(path):
                os.chmod(path, 0o700)
            function(path)

        try:
            shutil.rmtree(self.dir, onerror=retry)
        except OSError:
            shutil.rmtree(self.dir, ignore_errors=True)


class DockerSandbox:
    """A container of Docker."""

    def __init__(self, task, network):
        self.task, self.user = task, task.user
        self.dir = Path(tempfile.mkdtemp(prefix="maverl-harbor-"))
        self.name = f"maverl-harbor-{uuid.uuid4().hex[:16]}"
        try:
            self.start(network and task.public)
        except SandboxError:
            self.close()
            raise

    def docker(self, arguments, seconds):
        done = run_bounded(["docker", *arguments], seconds)
        if done.code != 0 or done.late:
            raise SandboxError(f"{self.task.name}: `docker {arguments[0]}` failed: {done.text[-500:].strip()}")
        return done

    def start(self, network):
        task, image = self.task, self.task.image
        if image is None:
            context = task.path / "environment"
            image = f"maverl-harbor:{hash_tree(context)}"
            self.docker(["build", "--quiet", "--tag", image, str(context)], task.build_s)
        made = ["run", "--detach", "--rm", "--name", self.name, "--entrypoint", "sleep", "--pids-limit", "1024"]
        made += ["--security-opt", "no-new-privileges", "--network", "bridge" if network else "none"]
        made += [] if task.cpus is None else ["--cpus", f"{task.cpus:g}"]
        made += [] if task.memory_mb is None else ["--memory", f"{int(task.memory_mb)}m"]
        made += [] if task.workdir is None else ["--workdir", task.workdir]
        for name, value in task.env.items():
            made += ["--env", f"{name}={value}"]
        self.docker([*made, image, "infinity"], task.build_s)

    def run(self, command, seconds, env=None, output=None):
        made = ["exec"] + ([] if self.user is None else ["--user", self.user])
        for name, value in (env or {}).items():
            made += ["--env", f"{name}={value}"]
        if output is not None:
            command = ["sh", "-c", 'out=$1; shift; exec "$@" > "$out" 2>&1', "sh", output, *command]
        # The end of this client does not end the program.
        bounded = ["timeout", "-k", "1", f"{max(seconds, 0.1):.1f}", *command]
        done = run_bounded(["docker", *made, self.name, *bounded], seconds + 30)
        return Ended(done.code, done.text, done.late or done.code in (124, 137))

    def upload(self, name, script):
        self.docker(["exec", "--user", "root", self.name, "rm", "-rf", f"/{name}"], 60)
        self.docker(["cp", str(self.task.path / name), f"{self.name}:/{name}"], 300)
        self.docker(["exec", "--user", "root", self.name, "chmod", "755", f"/{name}/{script}"], 60)

    def add_solution(self):
        self.upload("solution", "solve.sh")

    def begin_tests(self):
        self.upload("tests", "test.sh")
        self.user = self.task.verifier_user
        made = "rm -rf /logs/verifier && mkdir -p /logs/verifier && chmod 777 /logs/verifier"
        self.docker(["exec", "--user", "root", self.name, "sh", "-c", made], 60)

    def reward_file(self, name):
        path = self.dir / name
        inside = f"/logs/verifier/{name}"
        done = run_bounded(["docker", "exec", self.name, "head", "-c", str(MOST_OUTPUT), inside], 60)
        if done.code == 0 and not path.exists():
            path.write_text(done.text)
        return path

    def close(self):
        run_bounded(["docker", "rm", "--force", self.name], 60)
        shutil.rmtree(self.dir, ignore_errors=True)


def hash_tree(root):
    """Returns a hash of the names, kinds and contents of files, which names an image."""
    digest = hashlib.sha256()
    for folder, names, files in os.walk(root):
        names.sort()
        for name in sorted(names + files):
            path = Path(folder) / name
            mode = os.lstat(path).st_mode
            content = b""
            if stat.S_ISLNK(mode):
                content = os.readlink(path).encode()
            elif stat.S_ISREG(mode):
                content = path.read_bytes()
            digest.update(repr((str(path.relative_to(root)), mode, len(content))).encode() + content)
    return digest.hexdigest()[:24]


def has_docker():
    try:
        return run_bounded(["docker", "version", "--format", "{{.Server.Version}}"], 10).code == 0
    except OSError:
        return False


def has_bwrap():
    probe = ["--unshare-user", "--unshare-pid", "--unshare-net", "--uid", "0", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    try:
        return run_bounded(["bwrap", *probe], 10).code == 0
    except OSError:
        return False


def sandbox_kind():
    """Returns the kind of containers that this machine has."""
    if has_docker():
        return "docker"
    if has_bwrap():
        return "bwrap"
    raise SandboxError("there is neither a daemon of Docker nor `bwrap` that may make namespaces; install one of them")


@contextmanager
def open_sandbox(task, kind, network):
    """Makes the container of a task, and removes it at the end."""
    sandbox = (DockerSandbox if kind == "docker" else BwrapSandbox)(task, network)
    try:
        yield sandbox
    finally:
        sandbox.close()
