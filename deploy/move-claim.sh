#!/bin/sh
# Take a claim to another namespace with its data: the volume stays, the claim is made anew in front of it.
#   deploy/move-claim.sh FROM CLAIM TO      with the rights of a cluster's administrator; kubectl's context decides which cluster
# No pod may mount the claim meanwhile. Each step can be repeated: run it again where it was interrupted.
set -eu
[ $# = 3 ] || { echo "usage: $0 FROM CLAIM TO" >&2; exit 2; }
from=$1 claim=$2 to=$3

volume=$(kubectl get pvc "$claim" -n "$from" --ignore-not-found -o 'jsonpath={.spec.volumeName}')
if [ -z "$volume" ]; then  # an earlier run has deleted it: the volume still says whose it was
    volume=$(kubectl get pv -o "jsonpath={.items[?(@.metadata.annotations.muster\.dev/moved=='$from.$claim')].metadata.name}")
    [ -n "$volume" ] || { echo "$0: namespace $from has no claim $claim that is bound to a volume" >&2; exit 1; }
fi
if pods=$(kubectl get pods -n "$from" -o "jsonpath={.items[?(@.spec.volumes[*].persistentVolumeClaim.claimName=='$claim')].metadata.name}") && [ -n "$pods" ]; then
    echo "$0: these pods of namespace $from mount it: $pods; wait for their end" >&2
    exit 1
fi

# What the new claim is made of is kept at the volume until it is there.
if kubectl get pvc "$claim" -n "$from" >/dev/null 2>&1; then
    policy=$(kubectl get pv "$volume" -o 'jsonpath={.spec.persistentVolumeReclaimPolicy}')
    labels=$(kubectl get pvc "$claim" -n "$from" -o 'jsonpath={.metadata.labels}')
    size=$(kubectl get pvc "$claim" -n "$from" -o 'jsonpath={.spec.resources.requests.storage}')
    kubectl annotate pv "$volume" --overwrite "muster.dev/moved=$from.$claim" "muster.dev/policy=$policy" \
        "muster.dev/labels=${labels:-"{}"}" "muster.dev/size=$size"
    kubectl patch pv "$volume" -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'
    kubectl delete pvc "$claim" -n "$from"
fi
said() { kubectl get pv "$volume" -o "jsonpath={.metadata.annotations.muster\.dev/$1}"; }
modes=$(kubectl get pv "$volume" -o 'jsonpath={.spec.accessModes}')
class=$(kubectl get pv "$volume" -o 'jsonpath={.spec.storageClassName}')
kubectl patch pv "$volume" -p "{\"spec\":{\"claimRef\":{\"apiVersion\":\"v1\",\"kind\":\"PersistentVolumeClaim\",\"namespace\":\"$to\",\"name\":\"$claim\",\"uid\":null,\"resourceVersion\":null}}}"
kubectl apply -n "$to" -f - <<CLAIM
{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "$claim", "labels": $(said labels)},
 "spec": {"accessModes": $modes, "storageClassName": "$class", "volumeName": "$volume",
          "resources": {"requests": {"storage": "$(said size)"}}}}
CLAIM
kubectl wait pvc "$claim" -n "$to" --for=jsonpath='{.status.phase}'=Bound --timeout=120s
kubectl patch pv "$volume" -p "{\"spec\":{\"persistentVolumeReclaimPolicy\":\"$(said policy)\"}}"
kubectl annotate pv "$volume" muster.dev/moved- muster.dev/policy- muster.dev/labels- muster.dev/size-
