#!/bin/sh
# Lets workers join and clients submit: writes secrets/join-token and secrets/client-token. The master that leads makes
# them, for who may use Docker here. Run it again before they end, and then: docker compose restart worker-1 worker-2
set -eu
cd "$(dirname "$0")"
made=''
for master in master-a master-b; do
    says() { docker compose exec -T "$master" /opt/unistream/bin/unistream "$@"; }
    if join=$(says cluster token --name workers --uses 1000 --expires "90 d") &&
        client=$(says token create client --scope submit --expires "90 d"); then
        printf '%s\n' "$join" >secrets/join-token
        printf '%s\n' "$client" >secrets/client-token
        made=$master
        break
    fi
done
[ -n "$made" ] || { echo "no master leads yet: look at 'docker compose logs master-a master-b', and try again" >&2; exit 1; }
echo "tokens of 90 days are in secrets/, made by $made"
