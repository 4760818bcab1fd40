#!/bin/sh
# Makes the secrets of this cluster, each once: run again, it changes nothing. Only you can enter the folder; the files
# in it can be read, since a container sees them as another user.
set -eu
cd "$(dirname "$0")"
(umask 077 && mkdir -p secrets)
for name in cluster-secret zookeeper-password postgres-password; do
    [ -s "secrets/$name" ] || openssl rand -hex 32 >"secrets/$name"
done
for name in join-token client-token; do # tokens.sh fills them
    [ -e "secrets/$name" ] || : >"secrets/$name"
done
chmod 644 secrets/*
