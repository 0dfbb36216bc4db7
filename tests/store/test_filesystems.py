from __future__ import annotations

from lm_eval_bayes.store import locations

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


def test_the_innermost_mount_decides(tmp_path, monkeypatch):
    monkeypatch.setattr(locations, "MOUNTS", str(tmp_path / "mounts"))
    assert locations.network_file_system("/home/a") is None
    (tmp_path / "mounts").write_text(TABLE)
    assert {path: locations.network_file_system(path) for path in PLACES} == PLACES
    link = tmp_path / "link.sqlite"
    link.symlink_to("/scratch/a.sqlite")
    assert locations.network_file_system(link) == "lustre"
