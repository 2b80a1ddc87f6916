#!/usr/bin/env bash
# Puts the 796 largest PNG files of Debian's openclipart-png (public domain) into a directory.
#
#   Examples/images/fetch.sh DIR
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: fetch.sh DIR" >&2; exit 2; }
mkdir -p "$1"
target=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download openclipart-png >&2
dpkg -x openclipart-png_*.deb content
# Names repeat in the package's folders: each file gets a number, too.
find content -name '*.png' -printf '%s %p\n' | sort -k1,1rn -k2 | head -796 | cut -d' ' -f2- | nl -nrz -w3 |
  while read -r number path; do cp "$path" "$target/$number-$(basename "$path")"; done
echo "$(find "$target" -name '*.png' | wc -l) images in $target" >&2
