#!/usr/bin/env bash
# Writes requirements/*.txt from requirements/*.in: every version pinned, with the hashes of every
# wheel and source package of that version, and no address to download from.
# Versions that a list already pins are kept; `scripts/lock.sh --upgrade` takes the newest.
set -euo pipefail

cd "$(dirname "$0")/.."
tool=.cache/lock
[ -x "$tool/bin/uv" ] || {
    .venv/bin/python -m venv "$tool"
    "$tool/bin/pip" install --quiet --disable-pip-version-check uv==0.13.8
}
for list in build run dev; do
    target=requirements/$list.txt
    body=$(mktemp)
    [ ! -f "$target" ] || cp "$target" "$body"
    # dev.txt and run.txt share one environment, so the later list keeps to the earlier one's pins.
    "$tool/bin/uv" pip compile "requirements/$list.in" --quiet --generate-hashes --universal \
        --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
        $([ "$list" = dev ] && echo "--constraints requirements/run.txt") "$@" -o "$body"
    { echo "# Written by \`make lock\` from $list.in; pip checks every hash."; cat "$body"; } > "$target"
    rm -f "$body"
done
