#!/usr/bin/env bash
# Makes sure that Debian's Chromium is there, for the browser tests and `make screenshots` alone: installs it on
# Debian as root, else prints the one line to type. Quiet when it is there.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then exit 0; fi
done

line="apt-get install -y --no-install-recommends chromium fonts-liberation"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing chromium" >&2
    apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive $line -qq >&2
else
    echo "missing: chromium. Type: sudo $line" >&2
    exit 1
fi
