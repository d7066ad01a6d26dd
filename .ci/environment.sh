#!/bin/sh
# Run a command in the environment of this checkout, which is made first if need be.
#
#   PYTHON=… DJANGO=… VENV=… sh .ci/environment.sh GROUP COMMAND [ARGUMENT…]
#
# This half finds a Python; environment.py, which needs one, does the rest.

cd "${0%/*}/.." || exit 1

# Exit statuses of the probe; with any other, the candidate does not run.
TOO_OLD=43
NO_VENV=44

# Python 2 must be able to read it, or "too old" would come out as a syntax error.
PROBE="
import sys
sys.stdout.write('%d.%d.%d' % sys.version_info[:3])
if sys.version_info < (3, 11):
    sys.exit($TOO_OLD)
try:
    import ensurepip, venv
except ImportError:
    sys.exit($NO_VENV)
"

faults=
newline='
'

# Hands over to environment.py when the candidate $1 will do, and else notes why not.
# It is run, not only looked up: a name on PATH may be a shim with nothing behind it.
try() {
    candidate=$1
    shift
    said=$("$candidate" -c "$PROBE" 2>&1 </dev/null)
    case $? in
        0) exec "$candidate" .ci/environment.py "$@" ;;
        $TOO_OLD) fault="is Python $said, which is too old" ;;
        $NO_VENV) fault="is Python $said without the venv module. On Debian and Ubuntu: apt install python${said%.*}-venv" ;;
        *) fault="does not run: ${said%%"$newline"*}" ;;
    esac
    command -v "$candidate" >/dev/null || fault="is not found"
    faults="$faults$newline  $candidate $fault"
}

if [ -n "$PYTHON" ]; then
    try "$PYTHON" "$@"
else
    # The environment's own comes last. It serves when the Python that it was made
    # from is not on PATH, as after `make PYTHON=/some/where/python3.13`.
    for name in python3 python3.14 python3.13 python3.12 python3.11 "${VENV:-.venv}/bin/python"; do
        if command -v "$name" >/dev/null 2>&1; then
            try "$name" "$@"
        fi
    done
fi

echo "No usable Python. Needed: Python 3.11 or newer, with its venv module.${faults:-
  python3 is not found}
Install one, or name one: make PYTHON=/path/to/python3.13 …" >&2
exit 1
