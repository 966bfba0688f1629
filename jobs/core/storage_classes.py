"""Whether volumes of a storage class can be mounted by several nodes, as far as its provisioner tells. Pure."""

from collections.abc import Mapping

DEFAULT = ""  # the key of the class that a claim gets which names none
# Provisioners of disks and of folders of one node. Those that serve files too, by parameters of the class, are on neither list.
_ONE_NODE = frozenset(
    {
        "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/azure-disk", "kubernetes.io/cinder", "kubernetes.io/rbd",
        "kubernetes.io/vsphere-volume", "ebs.csi.aws.com", "ebs.csi.eks.amazonaws.com", "pd.csi.storage.gke.io",
        "disk.csi.azure.com", "cinder.csi.openstack.org", "rbd.csi.ceph.com", "topolvm.io", "topolvm.cybozu.com",
        "local.csi.openebs.io", "openebs.io/local", "rancher.io/local-path", "microk8s.io/hostpath", "k8s.io/minikube-hostpath",
        "docker.io/hostpath", "hostpath.csi.k8s.io", "csi.hetzner.cloud", "dobs.csi.digitalocean.com", "linodebs.csi.linode.com",
        "diskplugin.csi.alibabacloud.com", "csi.scaleway.com",
    }
)  # fmt: skip
_SEVERAL = frozenset(
    {
        "efs.csi.aws.com", "fsx.csi.aws.com", "filestore.csi.storage.gke.io", "lustre.csi.storage.gke.io", "file.csi.azure.com",
        "azurelustre.csi.azure.com", "nfs.csi.k8s.io", "smb.csi.k8s.io", "cephfs.csi.ceph.com", "csi.juicefs.com", "csi.weka.io",
        "beegfs.csi.netapp.com", "spectrumscale.csi.ibm.com", "csi.vastdata.com", "nasplugin.csi.alibabacloud.com",
        "cephfs.manila.csi.openstack.org", "nfs.manila.csi.openstack.org", "gcsfuse.csi.storage.gke.io", "s3.csi.aws.com",
        "exascaler.csi.ddn.com", "pfs.csi.ovh", "driver.longhorn.io",
    }
)  # fmt: skip
_PREFIXED = (".cephfs.csi.ceph.com", ".rbd.csi.ceph.com")  # Rook puts its namespace before the name


def serves_several(provisioner: str) -> bool | None:
    """Return whether several nodes can mount one volume of it; None where its name does not tell."""
    name = next((suffix[1:] for suffix in _PREFIXED if provisioner.endswith(suffix)), provisioner)
    if name in _ONE_NODE:
        return False
    return True if name in _SEVERAL or "nfs" in name.lower() else None


def complaint(wanted: str, *, known: Mapping[str, str] | None, is_shared: bool) -> str:
    """Return why no claim of this class can be served; empty where it can, or nobody knows.

    `known` maps names to provisioners, and DEFAULT to that of the cluster's default; None: they cannot be read.
    `is_shared`: several nodes shall mount it.
    """
    if known is None:
        return ""
    names = sorted(name for name in known if name != DEFAULT)
    if wanted != DEFAULT and wanted not in known:
        return f"does not exist; the cluster has {', '.join(names) or 'none'}"
    provisioner = known.get(wanted, "")
    if not is_shared or serves_several(provisioner) is not False:
        return ""
    others = [name for name in names if serves_several(known[name]) is not False]
    way_out = (
        f"choose one that several nodes can mount, such as {others[0]}" if others else "the cluster has none that can"
    )
    what = f"is the cluster's default, {provisioner}," if wanted == DEFAULT else f"is {provisioner},"
    return f"{what} whose volumes one node mounts; {way_out}"


def doubt(wanted: str, *, known: Mapping[str, str] | None) -> str:
    """Return what is not known of a class that several nodes shall mount; empty where it is known."""
    if known is None or (wanted and wanted not in known):
        return ""
    if wanted == DEFAULT and DEFAULT not in known:
        return "the cluster has no default storage class, so the claim waits for storage that is made by hand"
    provisioner = known[wanted]
    if serves_several(provisioner) is None:
        name = wanted or "the default storage class"
        return f"whether several nodes can mount a volume of {name} ({provisioner}) is not known here"
    return ""
