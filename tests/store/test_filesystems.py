from __future__ import annotations

import pytest

from lm_eval_bayes.store.locations import network_file_system

TABLE = """\
/dev/sda1 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/sdb1 /home/local xfs rw 0 0
mds:/ /scratch lustre rw,flock 0 0
//pc/share /mnt/with\\040blank cifs rw 0 0
me@host:/ /mnt/ssh fuse.sshfs rw 0 0
AFS /afs afs rw 0 0
pod /mnt/fuse fuse.portal rw 0 0
/dev/sdc1 /twice ext4 rw 0 0
server:/b /twice nfs rw 0 0
broken line
"""

PLACES = {
    "/home/me/a.sqlite": "nfs4",
    "/home": "nfs4",
    "/homework/a.sqlite": None,
    "/home/local/a.sqlite": None,
    "/scratch/run/1/a.sqlite": "lustre",
    "/mnt/with blank/a": "cifs",
    "/mnt/ssh/a": "fuse.sshfs",
    "/afs/cell/a": "afs",
    "/mnt/fuse/a": None,
    "/twice/a": "nfs",
    "/root/a": None,
}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "mounts"
    path.write_text(TABLE)
    return str(path)


@pytest.mark.parametrize("path", PLACES)
def test_the_innermost_mount_decides(table, path):
    assert network_file_system(path, table) == PLACES[path]


def test_a_link_is_followed(table, tmp_path):
    link = tmp_path / "link.sqlite"
    link.symlink_to("/scratch/a.sqlite")
    assert network_file_system(link, table) == "lustre"


def test_without_a_table_nothing_is_claimed(tmp_path):
    assert network_file_system("/home/a", str(tmp_path / "absent")) is None
