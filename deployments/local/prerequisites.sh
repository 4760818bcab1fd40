#!/usr/bin/env bash
# Checks for git, make, Python >= 3.11, Java 17 and Maven; installs what is missing on Debian as root,
# else prints the one line to type. Then makes sure that uv is there. Quiet when nothing is missing.
set -euo pipefail
cache=$1
missing=()

command -v git >/dev/null || missing+=(git)
command -v python3 >/dev/null || missing+=(python3)
java_major() { java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1; }
if ! command -v java >/dev/null || [ "$(java_major)" -lt 17 ]; then missing+=(openjdk-17-jre-headless); fi
command -v mvn >/dev/null || missing+=(maven)

if [ ${#missing[@]} -gt 0 ]; then
    line="apt-get install -y --no-install-recommends ${missing[*]}"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing ${missing[*]}" >&2
        apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive $line -qq >&2
    else
        echo "missing: ${missing[*]}. Type: sudo $line" >&2
        exit 1
    fi
fi

if ! python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'; then
    echo "python3 is $(python3 -V 2>&1); unistream needs 3.11, 3.12 or 3.13" >&2
    exit 1
fi

if ! command -v uv >/dev/null && [ ! -x "$cache/uv/bin/uv" ]; then
    echo "installing uv into $cache/uv" >&2
    if ! python3 -m venv "$cache/uv" 2>/dev/null; then
        line="apt-get install -y --no-install-recommends python3-venv"
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive $line -qq >&2
            python3 -m venv "$cache/uv"
        else
            echo "python3 cannot make a virtual environment. Type: sudo $line" >&2
            exit 1
        fi
    fi
    "$cache/uv/bin/pip" install --quiet uv
fi
