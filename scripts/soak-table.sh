#!/usr/bin/env bash
# Prints what the fault tests left in a file as one table, by fault and version.
set -euo pipefail

echo "| fault | HAProxy | requests | reached a closed tier | lost on an open tier | seconds |"
echo "|---|---|---:|---:|---:|---:|"
sort -t'|' -k2,2V -k3,3V "$1"
