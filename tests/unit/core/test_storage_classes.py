"""What the provisioner of a storage class tells of its volumes: whether several nodes can mount one."""

import pytest

from jobs.core.storage_classes import complaint, doubt, serves_several

KNOWN = {"": "ebs.csi.aws.com", "gp3": "ebs.csi.aws.com", "shared": "efs.csi.aws.com", "odd": "example.org/csi"}


@pytest.mark.parametrize(
    ("provisioner", "several"),
    [
        ("ebs.csi.aws.com", False),
        ("rook-ceph.rbd.csi.ceph.com", False),
        ("rook-ceph.cephfs.csi.ceph.com", True),
        ("cluster.local/nfs-subdir-external-provisioner", True),
        ("csi.vsphere.vmware.com", None),  # disks or files, by the class's parameters
        ("", None),
    ],
)
def test_what_a_provisioner_s_name_tells(provisioner, several):
    assert serves_several(provisioner) is several


@pytest.mark.parametrize(
    ("wanted", "is_shared", "words"),
    [
        ("shared", True, ""),
        ("odd", True, ""),
        ("gp3", False, ""),
        ("fast", False, "does not exist; the cluster has gp3, odd, shared"),
        ("gp3", True, "is ebs.csi.aws.com, whose volumes one node mounts; choose one that several nodes can mount, such as odd"),
        ("", True, "is the cluster's default, ebs.csi.aws.com, whose volumes one node mounts; choose one that several nodes can mount, such as odd"),
    ],
)  # fmt: skip
def test_a_class_that_cannot_serve_the_claim_is_refused_with_another_one(wanted, is_shared, words):
    assert complaint(wanted, known=KNOWN, is_shared=is_shared) == words


def test_what_nobody_knows_is_no_complaint():
    assert complaint("fast", known=None, is_shared=True) == ""
    assert complaint("", known={"shared": "efs.csi.aws.com"}, is_shared=True) == ""
    assert complaint("gp3", known={"gp3": "ebs.csi.aws.com"}, is_shared=True).endswith("the cluster has none that can")


@pytest.mark.parametrize(
    ("wanted", "known", "words"),
    [
        ("shared", KNOWN, ""),
        ("odd", KNOWN, "whether several nodes can mount a volume of odd (example.org/csi) is not known here"),
        ("", {"": "x"}, "whether several nodes can mount a volume of the default storage class (x) is not known here"),
        ("", {}, "the cluster has no default storage class, so the claim waits for storage that is made by hand"),
        ("odd", None, ""),
    ],
)
def test_what_is_not_known_is_said(wanted, known, words):
    assert doubt(wanted, known=known) == words
