"""The rules of all folders whose tests start an engine or its keeper, each of whose conftest.py takes them: what an
ordinary user's run takes of them, and that nothing is left."""
import pathlib
import subprocess

import pytest

import harness
import keepers


ALL = None
# The tests of these folders that an ordinary user runs: those in which a keeper, a box, a disk or a network of a user
# is made otherwise than root's, and one of each thing that a sandbox is for. All else is the same for everybody, and
# root's run tries it.
BY_USER = {
    "test_cli": ALL,  # a sandbox's life as a person types it, and the private engine, which is a user's
    "test_disk_dirs": ALL,  # root's disks are images
    "test_disk_used": ALL,  # a directory is weighed, an image asked
    "test_ids": ALL,  # root's boxes never want for ids
    "test_level": ALL,  # root has zygotes
    "test_mounts": ["test_an_ordinary_users_keeper_refuses_it"],
    "test_network_attacks": ALL,  # walls
    "test_network_walls": ALL,  # walls
    "test_root": ALL,  # walls, and a user's disk is a directory
    "test_soak": ALL,
    "test_slots": ALL,  # root's boxes are made of what is kept, a user's anew
    "test_sockets": [  # who owns the user namespaces of boxes reads their tables
        "test_a_box_whose_sockets_hold_too_much_is_ended_and_its_neighbour_is_not"],
    "test_claims": ["test_of_fifty_creates_at_once_no_two_share_a_box"],  # each has ids of its own
    "test_disks": [  # what root's images keep, a directory has to keep too
        "test_a_box_that_is_refused_leaves_no_disk", "test_a_lost_disk_is_not_an_empty_one",
        "test_an_image_root_is_kept_whole", "test_disk_has_an_end", "test_disk_that_is_a_link_is_not_followed",
        "test_dropped_disk_is_gone", "test_home_of_the_hosts_view_is_kept"],
    "test_events": ["test_a_command_that_memory_ran_out_for_is_told"],  # the watchdog, where root has a cgroup
    "test_exhaustion": [
        "test_after_a_reboot_sandboxes_are_stopped_and_have_their_disks",  # its places are a user's
        "test_sockets_of_every_kind_of_box_have_the_same_bounds",  # root's are made of what is kept
        "test_no_box_lowers_its_oom_score",  # only root lowers oom_score_adj
        "test_the_kernel_that_wants_memory_takes_a_box_before_engine_and_keeper"],
    "test_files": ["test_what_is_put_is_got", "test_root_of_a_box_changes_owners"],
    "test_files_attacks": [  # engine and box are of one user
        "test_no_path_leads_out", "test_nothing_of_the_engine_is_seen_through_a_tool"],
    "test_locks": [  # the kernel tells only root how many locks there are
        "test_no_box_locks_anonymous_files", "test_there_are_no_locks_of_open_files"],
    "test_keeper": [
        # Keeper and engine are of one user, with the rights that it has.
        "test_engine_has_its_fds_and_no_rights", "test_engine_may_write_its_own_directory_only",
        "test_keeper_cannot_be_looked_into", "test_a_run_directory_of_somebody_else_is_refused",
        # There are no cgroups that end boxes and count for them, and fewer ids.
        "test_box_is_made_and_ended", "test_200_boxes_leave_nothing", "test_boxes_with_other_limits",
        "test_boxes_together_have_half_of_the_pending_signals", "test_use_of_a_box_is_not_that_of_the_one_before",
        "test_a_new_engine_gets_the_boxes_back", "test_boxes_end_with_a_killed_keeper",
        "test_engine_that_outlives_its_keeper_is_killed", "test_sigterm_ends_all_in_order",
        "test_private_keeper_ends_with_its_engine"],
    "test_kernels": ["test_a_worker_has_nothing"],  # the ids of a worker
    "test_life": [  # no cgroup says what memory ran out for, and what is killed is another's outside of its namespace
        "test_a_command_without_memory_says_so_and_the_sandbox_runs_on",
        "test_a_kill_for_memory_is_told_of_its_command_alone", "test_nothing_acknowledged_is_lost_when_the_engine_dies",
        "test_what_is_persistent_is_written_when_it_ends", "test_when_the_keeper_dies_all_is_stopped_and_says_why",
        "test_who_is_given_a_box_of_the_pool_that_has_ended_gets_another_one"],
    "test_names": ["test_many_names_are_listed_with_long_lists_of_tenants"],  # a user's sockets take less
    "test_network": [  # the way out is dialled without a right of root's
        "test_a_list_opens_what_it_names_and_nothing_else",
        "test_a_run_has_the_network_that_it_is_given_and_no_other",
        "test_an_engine_that_is_killed_leaves_nothing_open_and_the_next_goes_on",
        "test_names_that_are_not_there_are_not_there", "test_no_rule_and_no_name_opens_what_is_fixed",
        "test_who_carries_the_network_of_a_run_has_no_rights_and_goes_with_it"],
    "test_ports": ["test_a_plain_server_answers_and_each_side_ends_its_half"],
    "test_start": ALL,  # an engine without an id of its own, and which configuration counts
    "test_terminal": ["test_a_terminal_is_one_and_its_end_is_that_of_the_command",
                      "test_its_limits_and_its_user_are_those_of_the_command"],
    "test_tls": ["test_the_key_is_nowhere_to_be_read"],  # there is no other user who could read it
    "test_upgrade": [  # groups, ids and the private engine
        "test_a_disk_that_is_kept_is_as_it_was", "test_a_keeper_that_is_killed_after_an_upgrade_leaves_nothing",
        "test_a_private_engine_is_upgraded_and_not_ended",
        "test_nobody_gets_the_ids_of_disks_meanwhile_and_their_files_are_there",
        "test_twenty_upgrades_leave_as_much_as_one"],
}
BY_USER_ONLY = {
    "test_disk_dirs": "root's disks are images",
    "test_ids": "root's boxes never want for ids",
}


BY_ROOT_ONLY = {
    "test_a_command_sends_its_key_over_the_systems_socket_where_that_is_anothers": "only root can be another user",
    "test_names_are_completed_by_the_server_that_the_command_would_ask": "only root can be another user",
}


def reason_against(item):
    """None, where a test runs here."""
    if harness.EXPECT.is_root:
        return BY_USER_ONLY.get(item.path.stem)
    if item.originalname in BY_ROOT_ONLY:
        return BY_ROOT_ONLY[item.originalname]
    names = BY_USER.get(item.path.stem, [])
    is_ours = names is ALL or item.originalname in names
    return None if is_ours else "the same for everybody who runs an engine: root's run has it"


@pytest.fixture(scope="session")
def stand_in():
    """Where every user may execute it: the engine is nobody's."""
    target = harness.MADE / "drivers" / "stand_in"
    source = harness.ROOT / "tests" / "keeper" / "drivers" / "stand_in.c"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([harness.ROOT / "scripts" / "test-programs.sh", "stand-in", target], check=True)
    return target


@pytest.fixture(autouse=True)
def nothing_left():
    before = harness.host()
    yield
    harness.check_nothing_left(before)


@pytest.fixture(autouse=True)
def nothing_of_boxes(request):
    """What boxes wrote to an ordinary user's disks is not the user's to remove, but as root of their ids."""
    here = "tmp_path" in request.fixturenames and request.getfixturevalue("tmp_path")
    yield
    if here and not harness.EXPECT.is_root:
        disks = here / "data" / "disks"
        for ids in (["--map-auto"], []):
            subprocess.run(["unshare", "--map-root-user", *ids, "rm", "-rf", disks],
                           stderr=subprocess.DEVNULL, check=False)


@pytest.fixture
def keeper(stand_in, tmp_path):
    with keepers.Keeper(stand_in, tmp_path) as started:
        yield started


def of_folder(conftest):
    """Returns the contents of a conftest.py: all fixtures, and a hook for the tests of its own folder."""
    folder = pathlib.Path(conftest).parent

    def pytest_collection_modifyitems(config, items):
        stale = {name for item in items if item.path.parent == folder
                 for name in BY_USER.get(item.path.stem) or [] if not hasattr(item.module, name)}
        if stale:
            raise pytest.UsageError(f"BY_USER of tests/lib/rules.py names tests that there are not: {stale}")
        harness.leave_out(config, items, lambda item: item.path.parent == folder and reason_against(item))

    return keeper, nothing_left, nothing_of_boxes, stand_in, pytest_collection_modifyitems
