#!/bin/sh
# Lets workers join: makes the Secret unistream-join, or replaces it, and prints a token for a client. The master that
# leads makes them, for who may exec in its pod. Run it again before they end (90 days), or to have other ones.
set -eu
namespace=${1:?"usage: ./tokens.sh NAMESPACE"}
for pod in unistream-master-0 unistream-master-1; do
    says() { kubectl --namespace "$namespace" exec "$pod" -- /opt/unistream/bin/unistream "$@"; }
    if join=$(says cluster token --name workers --uses 100000 --expires "90 d") &&
        client=$(says token create client --scope submit --expires "90 d"); then
        printf '%s\n' "$join" | kubectl --namespace "$namespace" create secret generic unistream-join \
            --from-file=token=/dev/stdin --dry-run=client --output=yaml |
            kubectl --namespace "$namespace" apply --filename=- >&2
        printf '%s\n' "$client"
        exit 0
    fi
done
echo "no master leads yet: look at 'kubectl --namespace $namespace logs unistream-master-0', and try again" >&2
exit 1
