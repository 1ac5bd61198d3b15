"""`cove config` and cove.conf(5), held against the two programs that read the file."""
import json
import re
import subprocess

import harness
from scripted import cove, failed, good

SRC = harness.ROOT / "src"


def settings(path):
    return json.loads(good(cove("config", "show", "--json", "--config", path)))["settings"]


def values(path):
    return {(section, name): one.get("value") for section, names in settings(path).items() for name, one in names.items()}


def tables():
    """{section: {name: default}} of the programs; None where neither has one."""
    rows = re.findall(r'\{"([a-z_]+)", "([a-z0-9_]+)", CONF_\w+(.*?)\},\n', (SRC / "front/settings.c").read_text(), re.S)
    rows += re.findall(r'\{\.section = "([a-z_]+)",\s+\.name = "([a-z0-9_]+)",(.*?)\},\n',
                       (SRC / "keeper/config.c").read_text(), re.S)
    known = {}
    for section, name, rest in rows:
        fallback = re.search(r'\.fallback = "(.+?)"', rest)
        known.setdefault(section, {}).setdefault(name, None)
        if fallback:
            known[section][name] = fallback[1]
    return known


def test_each_name_that_the_server_knows_is_shown_with_its_default():
    known, shown = tables(), settings("/dev/null")
    assert sum(map(len, known.values())) > 35
    for section, names in known.items():
        assert set(names) == set(shown[section]), section
        for name, fallback in names.items():
            # The bounds of a sandbox, and what has an option, have their defaults in code.
            assert shown[section][name].get("default") == fallback or fallback is None, (section, name)
    assert set(shown) - set(known) == {"roots", "root_tenants", "mounts", "mount_tenants"}


def test_the_sample_is_a_file_that_changes_nothing(tmp_path):
    sample, path = good(cove("config", "sample")), str(tmp_path / "cove.conf")
    for text in (sample, re.sub(r"^#([a-z0-9_]+ = .*)$", r"\1", sample, flags=re.M)):
        (tmp_path / "cove.conf").write_text(text)
        assert values(path) == values("/dev/null")
        # Another server may have the address.
        (tmp_path / "cove.conf").write_text(text.replace("\nlisten = 127.0.0.1:7070", "\nlisten = none"))
        good(cove("config", "check", "--config", path))
    assert text.count("\n#") < sample.count("\n#")


def test_what_a_file_says_is_shown(tmp_path):
    path, again = tmp_path / "own.conf", tmp_path / "again.conf"
    path.write_text("[boxes]\nmemory = 512M   # half\n[roots]\ndebian = /srv/debian\n[serve]\nhosts = a, b\n")
    text = good(cove("config", "show", "--config", str(path)))
    assert text.startswith(f"# {path}\n[serve]\n")
    for line in ("memory = 512M", "# disk = 2G", "hosts = a, b", "[roots]\ndebian = /srv/debian"):
        assert f"\n{line}\n" in text, line
    again.write_text(text)
    assert settings(str(again)) == settings(str(path))
    assert settings(str(path))["boxes"]["memory"] == {"value": "512M", "default": "1G", "is_set": True}


def test_what_is_wrong_is_named_with_its_line(tmp_path):
    path = tmp_path / "own.conf"
    for text, line, word in (("[boxes]\nmemry = 1G\n", 2, '"memry"'), ("[box]\n", 1, "[box]"),
                             ("memory\n", 1, "NAME = VALUE")):
        path.write_text(text)
        failed(cove("config", "show", "--config", str(path)), f"{path}:{line}: ", word)
    failed(cove("config", "show", "--config", str(tmp_path / "none.conf")), "none.conf")


def test_the_manual_page_has_each_name(tmp_path):
    source = tmp_path / "cove.conf.5"
    source.write_text(good(cove("man", "cove.conf")))
    checked = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", source], capture_output=True, timeout=30,
                             text=True, check=False)
    # Of the manuals that are installed here it knows nothing.
    assert [line for line in checked.stdout.splitlines() if "referenced manual not found" not in line] == []
    for section, names in settings("/dev/null").items():
        assert f".SH [{section}]" in source.read_text()
        for name in names:
            assert re.search(rf"^\.B {name}( = .*)?$", source.read_text(), re.M), name
