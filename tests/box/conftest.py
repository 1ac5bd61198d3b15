"""Builds the attack programs once, and holds every test to the same rule: the host is healthy after
it, and nothing of a box is left."""
import fcntl
import os
import pathlib
import shutil
import subprocess

import pytest

import harness
import testroot

TEST_PROGRAMS = harness.ROOT / "scripts" / "test-programs.sh"


def is_older(target, sources):
    """What is not there cannot be newer: a guest has the programs only."""
    return not target.exists() or any(
        source.exists() and source.stat().st_mtime > target.stat().st_mtime for source in sources)


def build_attacks():
    """Static, so that they run in a box with any root."""
    harness.ATTACKS.mkdir(parents=True, exist_ok=True)
    sources = sorted((harness.BOX_TESTS / "attacks").glob("*.c"))
    target = harness.ATTACKS / "attack"
    if not is_older(target, [*sources, harness.BOX_TESTS / "attacks" / "attack.h"]):
        return
    subprocess.run([TEST_PROGRAMS, "attack", target], check=True)


def build_driver(name):
    """Runs words of tests/box/drivers/NAME.c, through the library of the binary under test."""
    build = harness.COVE.parent
    libraries = [build / "src/box/libbox.a", build / "src/base/libbase.a"]
    sources = [harness.BOX_TESTS / "drivers" / f"{name}.c", harness.ROOT / "src/box/box.h",
               harness.ROOT / "src/box/link.h"]
    target = harness.MADE / "drivers" / f"{name}-{build.name}"
    target.parent.mkdir(exist_ok=True)
    if is_older(target, [*sources, *libraries]):
        subprocess.run([TEST_PROGRAMS, "driver", target, build], check=True)

    def drive(profile, *words, limit=180, bind=None, **more):
        environment = dict(os.environ, COVE_TEST_ATTACKS=str(harness.ATTACKS))
        if bind:
            environment["COVE_TEST_BIND"] = str(bind)
        return subprocess.run([target, profile, *map(str, words)], capture_output=True, text=True,
                              timeout=limit * harness.PATIENCE, stdin=subprocess.DEVNULL,
                              env=environment, check=False, **more)

    return drive


@pytest.fixture(scope="session")
def commands():
    """Several commands in one box."""
    return build_driver("commands")


@pytest.fixture(scope="session")
def links():
    """One box by links that come and go."""
    return build_driver("links")


def pytest_configure(config):
    del config
    harness.MADE.mkdir(parents=True, exist_ok=True)
    with open(harness.MADE / ".attacks.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build_attacks()


def pytest_report_header(config):
    del config
    return f"cove under test: {harness.COVE}"


@pytest.fixture(scope="session")
def last_look():
    """The host after the last test, which is the host before the next one."""
    return []


@pytest.fixture(autouse=True)
def host_is_as_before(last_look):
    before = last_look.pop() if last_look else harness.host()
    yield
    last_look.append(harness.check_nothing_left(before))
    harness.check_host_healthy()


@pytest.fixture(scope="session")
def debian():
    return testroot.debian()


@pytest.fixture(scope="session")
def busybox(tmp_path_factory):
    """A root of one program and its links: quick to make, and what an image may be at least."""
    root = tmp_path_factory.mktemp("covetest-busybox")
    for name in ("bin", "etc", "tmp", "usr/bin", "lower"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    for name in ("sh", "ls", "cat", "id", "echo", "true", "sleep", "rm", "mkdir", "stat", "cp",
                 "touch", "find", "grep", "head", "wc", "env", "mount", "chmod", "ps", "kill"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "usr/bin/env").symlink_to("/bin/busybox")
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\nstaff:x:50:user\n")
    (root / "tmp").chmod(0o1777)
    return root


@pytest.fixture(scope="session")
def erofs(busybox, tmp_path_factory):
    image = tmp_path_factory.mktemp("covetest-erofs") / "root.erofs"
    subprocess.run(["mkfs.erofs", str(image), str(busybox)], check=True, capture_output=True)
    return image


@pytest.fixture
def workspace(tmp_path):
    """A directory to bind, of the caller."""
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def memory_before():
    return harness.memory_available()


# What an ordinary user's run leaves out, by file or by test, and why.
BY_ROOT_ONLY = {
    "test_inotify_instances_of_roots_boxes_are_each_boxs_own": "boxes of an ordinary user have what the user has",
    "test_bad_input": "a command line is parsed alike for everybody",
    "test_real_work": "what works in root's boxes works in a user's: walls and limits have tests of their own",
    "surround": "root sets these up, and becomes a user in them where one is wanted",
    "test_a_release_ignores_the_switch": "only root's binds are idmapped",
    "test_the_switches_do_something": "only root's binds are idmapped",
    "test_a_workspace_that_cannot_be_mapped_is_refused_with_the_remedy": "only root's are mapped",
    "test_disk_and_inodes_are_capped_on_the_loop_device_too": "only root has loop devices",
    "test_the_loop_device_goes_with_a_killed_cove": "only root has loop devices",
    "test_33_device_nodes_of_an_image_do_not_open": "only root makes device nodes",
    "test_36_mounts_below_a_workspace_stay_out_or_are_as_confined": "only root mounts",
    "test_20_frozen_at_destroy": "only root moves a box to another group",
    "test_21_a_file_system_that_hangs": "only root mounts",
    "test_a_device_in_the_place_of_an_accounts_file_is_not_opened": "only root makes device nodes",
    "test_a_host_that_wants_memfds_without_exec": "only root sets it",
    "test_a_limit_that_no_cgroup_keeps_is_kept_by_the_watchdog": "only root takes a cgroup away",
    "test_dockers_default_profile_makes_the_calls_that_the_table_says": "only root has the rights of a container",
    "test_an_unrelated_group_of_that_name_stays": "only root makes such a group",
}
# Of these files such a run takes only this: the rest is the command line's, and the same for everybody.
BY_USER = {
    "test_run": ["test_json_measures_cpu_and_memory", "test_default_user_and_home", "test_user_option", "test_cwd",
                 "test_files_of_other_ids_can_be_deleted_outside",
                 "test_a_workspace_named_relatively_and_through_a_link", "test_image_roots",
                 "test_groups_of_an_images_user", "test_signals_reach_the_whole_group",
                 "test_timeout_ends_what_ignores_signals", "test_tty_is_a_terminal_with_the_size_of_the_callers",
                 "test_tty_has_job_control_and_echo"],
}

# What is about cgroups, where cove has none.
BY_CGROUP_ONLY = {
    "test_10_buffers_are_charged_to_the_box": "a watchdog cannot count buffers",
    "test_a_jvm_sizes_its_heap_by_the_limit": "a JVM asks cgroups only",
    "test_a_jvm_counts_its_cpus": "a JVM asks cgroups only",
    "test_the_boxs_own_cgroups_say_the_limits": "there are none",
}


# What needs a second id: each name is of a test, or of a parameter of tests.
BY_MANY_IDS_ONLY = {
    "system, as user": "root and a user are two",
    "test_32_a_set_uid_program_in_system_is_root_of_the_box_only": "root and a user are two",
    "test_29_another_user_of_a_system_box_writes_at_home_and_not_at_the_root": "root and a user are two",
    "test_36_the_workspace_is_a_wall": "somebody else's file cannot be made",
}


def reason_against(item):
    """None, where a test runs here."""
    names = {item.originalname, pathlib.Path(item.fspath).stem}
    names |= {getattr(value, "__module__", None) for value in vars(item.module).values()}
    expect = harness.EXPECT
    found = [reason for name, reason in BY_MANY_IDS_ONLY.items() if expect.ids == "single" and name in item.name]
    found += [BY_ROOT_ONLY[name] for name in names & BY_ROOT_ONLY.keys() if not expect.is_root]
    found += [BY_CGROUP_ONLY[name] for name in names & BY_CGROUP_ONLY.keys() if not expect.has_cgroup]
    if not expect.is_root and item.originalname not in BY_USER.get(item.path.stem, [item.originalname]):
        found.append("the same for everybody who runs boxes: root's run has it")
    return found[0] if found else None


def pytest_collection_modifyitems(config, items):
    """The long ones last, so that a broken build shows at once."""
    harness.leave_out(config, items, reason_against)
    last = ("test_system", "test_real_work", "test_cleanup")
    items.sort(key=lambda item: pathlib.Path(item.fspath).stem in last)
