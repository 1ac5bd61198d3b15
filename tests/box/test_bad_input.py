"""Bad input gives one sentence that names the thing and what to do, and exit 125. Nothing runs."""
import json
import os
import shutil

import pytest

import harness
from harness import cove, run_plain


def refused(*arguments, names=(), **more):
    """One line on stderr, nothing on stdout, 125."""
    result = cove("run", *arguments, **more)
    text = result.err.decode()
    assert result.code == 125, (result.code, text, result.out)
    assert len(text.splitlines()) == 1 and text.startswith("cove: "), text
    assert result.out == b""
    for name in names:
        assert str(name).lower() in text.lower(), text
    return text


def test_unknown_option_with_its_neighbour():
    text = refused("--worksapce", "/tmp", "--", "true", names=("--worksapce", "--workspace"))
    assert "?" in text or "mean" in text
    refused("-x", "--", "true", names=("-x",))
    refused("--no-such-thing-at-all=1", "--", "true", names=("--no-such-thing-at-all",))


def test_no_command():
    refused(names=("command",))
    refused("--", names=("command",))
    refused("--memory", "64M", names=("command",))


def test_option_without_its_value():
    refused("--memory", names=("--memory",))
    refused("--root", names=("--root",))


def test_option_that_takes_none_has_one():
    refused("--tty=yes", "--", "true", names=("--tty",))


@pytest.mark.parametrize("option, values", [
    ("--memory", ["lots", "", "-1", "1.5.2G", "12X", "0x10", "99999999999999999999", "1e3", "1 G"]),
    ("--cpus", ["many", "0", "-2", "1.2.3", "", "100000000"]),
    ("--pids", ["few", "0", "-1", "1.5", "", "99999999999999"]),
    ("--disk", ["big", "", "1G,", "1G,x", ",5", "1G,0", "1G,1,1", "-5"]),
    ("--timeout", ["soon", "", "-1s", "5 s", "1x", "s", "99999999999999h"]),
])
def test_limit_that_is_no_number(option, values):
    for value in values:
        refused(f"{option}={value}", "--", "true", names=(option.strip("-"),))


def test_output_limit():
    refused("--output-limit", "1M", "--", "true", names=("--output-limit", "--json"))
    result = cove("run", "--json", "--output-limit", "none", "--", "true")
    assert result.code == 125 and len(result.err.splitlines()) == 1


@pytest.mark.parametrize("option", ["--root", "--workspace"])
def test_directory_that_does_not_exist(option, tmp_path):
    refused(option, tmp_path / "missing", "--", "true", names=(tmp_path / "missing",))


def test_mount_that_does_not_exist(tmp_path):
    refused("--mount", f"{tmp_path}/missing:/data", "--", "true", names=(f"{tmp_path}/missing",))


def test_workspace_that_is_a_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    refused("--workspace", path, "--", "true", names=(path, "directory"))


@pytest.mark.parametrize("content", [b"", b"x", b"not an image at all " * 1000, bytes(8192)])
def test_image_that_is_none(content, tmp_path):
    path = tmp_path / "root.erofs"
    path.write_bytes(content)
    refused("--root", path, "--", "true", names=(path,))


def test_image_that_is_cut(erofs, tmp_path):
    data = erofs.read_bytes()
    for size in (1100, 4096, len(data) // 2):
        path = tmp_path / f"cut-{size}.erofs"
        path.write_bytes(data[:size])
        result = cove("run", "--root", path, "--", "/bin/cat", "/bin/busybox")
        assert result.code != 0 and len(result.err.splitlines()) >= 1


def test_image_of_unreadable_kind(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    refused("--root", tmp_path / "fifo", "--", "true", names=(tmp_path / "fifo",), limit=10)
    refused("--root", "/dev/null", "--", "true", names=("/dev/null",))


@pytest.mark.parametrize("mount, name", [
    ("{0}:relative", "relative"), ("{0}:/", "/"), ("{0}:/proc/x", "/proc"), ("{0}:/dev", "/dev"),
    ("{0}:/sys/fs", "/sys"), ("{0}:/a/../b", ".."), ("{0}", ":"), ("{0}:", ":"), (":/data", ":"),
    ("{0}:/data:rx", "rx"), ("{0}:/data:ro:ro", "ro"),
])
def test_mount_that_cannot_be(mount, name, tmp_path):
    refused("--mount", mount.format(tmp_path), "--", "true", names=(name,))


def test_two_mounts_on_one_place(tmp_path):
    refused("--mount", f"{tmp_path}:/data", "--mount", f"{tmp_path}:/data", "--", "true",
            names=("/data",))
    refused("--workspace", tmp_path, "--mount", f"{tmp_path}:/workspace", "--", "true",
            names=("/workspace",))


def test_too_many_mounts(tmp_path):
    options = [word for i in range(200) for word in ("--mount", f"{tmp_path}:/home/user/m{i}")]
    refused(*options, "--", "true", names=("mount",))


def test_user_that_is_not_there():
    refused("--user", "nobody-here", "--", "true", names=("nobody-here",))
    refused("--user", "", "--", "true", names=("user",))
    refused("--user", "user:nogroup-here", "--", "true", names=("nogroup-here",))
    refused("--user", "4294967295", "--", "true", names=("4294967295",))
    refused("--user", "99999999999", "--", "true", names=("99999999999",))


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 65, "a/b", "a\nb", "ä"])
def test_host_name_that_is_none(name):
    refused("--hostname", name, "--", "true", names=("host",))


def test_environment_that_is_none():
    refused("--env", "=value", "--", "true", names=("--env",))
    refused("--env", "", "--", "true", names=("--env",))


def test_privileges_and_network_of_other_names():
    refused("--privileges", "root", "--", "true", names=("root", "plain", "system"))
    refused("--net", "host", "--", "true", names=("--net", "host", "none", "public"))


def test_json_and_tty_exclude_each_other():
    for order in (("--json", "--tty"), ("--tty", "--json")):
        result = cove("run", *order, "--", "true")
        assert result.code == 125 and len(result.err.splitlines()) == 1
        assert b"--json" in result.err and b"--tty" in result.err


def test_working_directory_that_is_not_there():
    result = run_plain("true", "--cwd", "/no/such/place")
    assert result.code == 125 and len(result.err.splitlines()) == 1
    assert b"/no/such/place" in result.err
    refused("--cwd", "relative", "--", "true", names=("relative",))


@pytest.mark.parametrize("arguments", [
    ("--root", "/missing-root", "--", "true"), ("--memory", "x", "--", "true"), ("--no-such",),
    ("--cwd", "/missing", "--", "true"), ("--user", "nobody-here", "--", "true"),
])
def test_with_json_the_error_is_an_object_too(arguments):
    result = cove("run", "--json", *arguments)
    assert result.code == 125 and len(result.err.splitlines()) == 1
    report = json.loads(result.out)
    assert set(report) == {"error"} and set(report["error"]) == {"code", "message"}
    assert report["error"]["message"] in result.err.decode()
    assert report["error"]["code"].replace("_", "").isalnum()


def test_cove_itself():
    for arguments in ((), ("no-such-command",), ("rum",)):
        result = cove(*arguments)
        assert result.code == 125 and result.err and not result.out
    assert b"run" in cove("rum").err


def test_a_process_that_cannot_be_is_said_before_any_box():
    result = cove("run", "--pids", "1", "--", "true")
    assert result.code == 125 and b"--pids 1" in result.err and b"at least 2" in result.err
    assert cove("run", "--pids", "2", "--", "true").code == 0


def test_too_little_memory_or_disk_is_said():
    for option in (("--memory", "4K"), ("--disk", "1"), ("--pids", "1"), ("--disk", "1M,1")):
        result = cove("run", *option, "--", "true")
        assert result.code in (0, 125, 137), (option, result)
        if result.code == 125:
            assert len(result.err.splitlines()) == 1
            assert option[0].encode() in result.err, result.err


def test_nested_too_deep(tmp_path):
    """A box in a box in a box: what fails says in which way, in one line."""
    binary = tmp_path / "bin"
    binary.mkdir()
    shutil.copy(harness.COVE, binary / "cove")
    result = cove("run", "--mount", f"{binary}:/cove:ro", "--", "/cove/cove", "run", "--", "true")
    assert result.code == 125
    assert len(result.err.splitlines()) == 1 and result.err.startswith(b"cove: "), result.err


def test_words_of_the_command_are_not_options():
    result = run_plain(["echo", "--json", "--root", "/missing"])
    assert result.out == b"--json --root /missing\n"
    result = cove("run", "echo", "--json")
    assert result.out == b"--json\n"
