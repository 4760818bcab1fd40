#!/bin/sh
# Makes the Secret unistream-secrets, once: ./secrets.sh NAMESPACE < file with the URL of the database, such as
# postgresql+psycopg://unistream:PASSWORD@db/unistream. No value is on a command line.
set -eu
namespace=${1:?"usage: ./secrets.sh NAMESPACE < FILE, whose first line is the URL of the database"}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
umask 077
head -n 1 | tr -d '\n' >"$folder/metadata-url"
[ -s "$folder/metadata-url" ] || { echo "the first line of the input is the URL of the database: there is none" >&2; exit 1; }
for name in cluster-secret zookeeper-password; do openssl rand -hex 32 >"$folder/$name"; done
kubectl --namespace "$namespace" create secret generic unistream-secrets --from-file="$folder"
