"""Real work runs unmodified in the host profile with a workspace: compilers, package managers'
runners, version control, archives, databases. No network, so nothing is downloaded."""
import os
import pathlib
import shutil

import harness
from harness import run

GO = shutil.which("go", path=os.environ["PATH"] + ":/usr/local/go/bin")


def work(script, workspace, *options, code=0):
    result = run(script, "--workspace", workspace, "--timeout", "600s", *options, limit=630)
    assert result.report["exit_code"] == code, (result.stdout[-2000:], result.stderr[-2000:])
    for path in workspace.rglob("*"):
        assert path.lstat().st_uid == os.getuid(), path
    return result.stdout


def write(workspace, files):
    for name, text in files.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_c_build_with_gcc_and_make(workspace):
    write(workspace, {
        "Makefile": "CFLAGS = -O2 -Wall -g\nprogram: main.o sum.o\n\t$(CC) -o $@ $^ -lm\n"
                    "check: program\n\t./program 3 4 | grep -qx 5\n.PHONY: check\n",
        "main.c": "#include <stdio.h>\n#include <stdlib.h>\ndouble hypotenuse(double, double);\n"
                  "int main(int c, char **v)\n{\n    (void)c;\n"
                  "    printf(\"%g\\n\", hypotenuse(atof(v[1]), atof(v[2])));\n    return 0;\n}\n",
        "sum.c": "#include <math.h>\ndouble hypotenuse(double a, double b)\n{\n"
                 "    return sqrt(a * a + b * b);\n}\n"})
    work("make -j2 check && ./program 5 12", workspace)
    assert (workspace / "program").stat().st_mode & 0o111


def test_a_debugger_works(workspace):
    write(workspace, {"main.c": "int main(void) { return 42; }\n"})
    output = work("gcc -g -o main main.c && { strace -f ./main 2>&1; test $? -eq 42; }", workspace)
    assert "exited with 42" in output


def test_python_venv_and_its_test_runner(workspace):
    write(workspace, {
        "package/__init__.py": "def double(x):\n    return 2 * x\n",
        "tests/__init__.py": "",
        "tests/test_double.py": "import subprocess, sys, tempfile, threading, unittest\n"
                                "from concurrent.futures import ProcessPoolExecutor\n"
                                "from package import double\n\n\nclass Double(unittest.TestCase):\n"
                                "    def test_it(self):\n        self.assertEqual(double(21), 42)\n\n"
                                "    def test_in_processes(self):\n"
                                "        with ProcessPoolExecutor(2) as pool:\n"
                                "            self.assertEqual(list(pool.map(double, [1, 2])), [2, 4])\n"
                                "        done = subprocess.run([sys.executable, '-c', 'print(1)'],"
                                " capture_output=True)\n"
                                "        self.assertEqual(done.stdout, b'1\\n')\n"})
    output = work("python3 -m venv env && . env/bin/activate && which python && "
                  "python -m unittest -v 2>&1 && pip --version && pip list --disable-pip-version-check",
                  workspace)
    assert "/workspace/env/bin/python" in output and "OK" in output and "pip" in output


def test_npm_test_of_a_small_project(workspace):
    write(workspace, {
        "package.json": '{"name": "small", "version": "1.0.0", "type": "module", '
                        '"scripts": {"test": "node --test"}}\n',
        "sum.js": "export const sum = (...n) => n.reduce((a, b) => a + b, 0);\n",
        "sum.test.js": "import test from 'node:test';\nimport assert from 'node:assert';\n"
                       "import { Worker } from 'node:worker_threads';\nimport { sum } from './sum.js';\n"
                       "test('sums', () => assert.equal(sum(1, 2, 3), 6));\n"
                       "test('works in a thread', () => new Promise((done, fail) => {\n"
                       "  new Worker('require(\"worker_threads\").parentPort.postMessage(7)', "
                       "{ eval: true }).on('message', done).on('error', fail);\n}));\n"})
    output = work("npm test && npm pack --silent", workspace)
    assert "pass 2" in output and (workspace / "small-1.0.0.tgz").exists()


def test_git_init_commit_and_log(workspace):
    output = work("git init -q -b main . && git config user.email a@localhost && "
                  "git config user.name A && echo one > file && git add . && git commit -qm first && "
                  "echo two >> file && git commit -qam second && git log --oneline && "
                  "git clone -q . /tmp/clone && git -C /tmp/clone status --short && git gc -q && "
                  "git fsck", workspace)
    assert len(output.strip().splitlines()) == 2
    assert (workspace / ".git/HEAD").read_text() == "ref: refs/heads/main\n"


def test_git_in_a_repository_of_the_caller(workspace):
    import subprocess
    for command in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@localhost", "commit",
                                     "-q", "--allow-empty", "-m", "made outside"]):
        subprocess.run(["git", *command], cwd=workspace, check=True)
    assert "made outside" in work("git log --format=%s", workspace)


def test_tar_and_compression(workspace):
    output = work("mkdir -p d/e && seq 1 10000 > d/e/f && ln -s e d/link && ln d/e/f d/hard && "
                  "tar czf a.tar.gz d && mkdir out && tar xzf a.tar.gz -C out && cmp d/e/f out/d/e/f && "
                  "readlink out/d/link && stat -c %h out/d/hard && xz -k d/e/f -c | xz -t && "
                  "tar cJf a.tar.xz d && tar tJf a.tar.xz | wc -l", workspace)
    assert output.split() == ["e", "2", "5"]


def test_sqlite(workspace):
    output = work("sqlite3 db 'pragma journal_mode = wal; create table t (a, b); "
                  "insert into t select value, value * value from generate_series(1, 1000); "
                  "select sum(b) from t; pragma integrity_check;'", workspace)
    assert output.split() == ["wal", "333833500", "ok"]


def test_ssh_keygen(workspace):
    output = work("ssh-keygen -q -t ed25519 -N '' -C test -f key && ssh-keygen -lf key.pub && "
                  "mkdir -p ~/.ssh && stat -c %a key", workspace)
    assert "ED25519" in output and output.split()[-1] == "600"


def test_go_build_and_test(workspace):
    write(workspace, {
        "go.mod": "module small\n\ngo 1.18\n",
        "main.go": "package main\n\nimport \"fmt\"\n\nfunc Sum(n ...int) (s int) {\n"
                   "\tfor _, x := range n {\n\t\ts += x\n\t}\n\treturn\n}\n\n"
                   "func main() { fmt.Println(Sum(40, 2)) }\n",
        "main_test.go": "package main\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n"
                        "\tif Sum(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n"})
    # A cache outside would do as well; it is kept for the next run of this test.
    cache = harness.MADE / "go-cache"
    cache.mkdir(exist_ok=True)
    directory = pathlib.Path(GO).resolve().parent
    output = work(f"export PATH=$PATH:{directory} GOCACHE=/cache GOFLAGS=-mod=mod GOPROXY=off "
                  "GOTOOLCHAIN=local; go vet ./... && go test ./... && go build -o program && ./program",
                  workspace, "--mount", f"{cache}:/cache", "--disk", "2G")
    assert "ok" in output and output.split()[-1] == "42"


def test_java_compile_and_run(workspace):
    write(workspace, {"Main.java": "import java.util.stream.*;\npublic class Main {\n"
                                   "  public static void main(String[] a) throws Exception {\n"
                                   "    var t = new Thread(() -> System.out.println("
                                   "IntStream.range(0, 10).sum()));\n    t.start(); t.join();\n"
                                   "    System.out.println(Runtime.getRuntime().maxMemory() > 0);\n"
                                   "  }\n}\n"})
    assert work("javac Main.java && java Main", workspace).split() == ["45", "true"]


def test_shell_tools_of_every_day(workspace):
    write(workspace, {"text": "b\na\nc\n"})
    output = work("sort text | head -2 | tr a-z A-Z; find . -name text -exec wc -l {} +; "
                  "printf '%s\\n' x y | xargs -P2 -n1 echo | sort; mktemp; timeout 5 sleep 0.01; "
                  "script -qc tty /dev/null; echo done", workspace)
    assert output.startswith("A\nB\n3 ./text\nx\ny\n/tmp/tmp.") and output.endswith("done\n")
    assert "/dev/pts/" in output
