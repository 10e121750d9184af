#!/bin/sh
# Prints in one line the requirements that a build of uhal lacks here, and a command to install
# them.
#
#   prerequisites.sh [--packages] [--offline] PYTHON
#
# --packages prints only the Debian packages that are missing, for a machine that installs them.
# --offline leaves the network out: nothing has to be downloaded.
# Exit status 0 when nothing is missing.
set -u

packages_only=no
network=yes
while [ $# -gt 1 ]; do
    case $1 in
        --packages) packages_only=yes network=no ;;
        --offline) network=no ;;
        *) echo "prerequisites.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift
done
python=$1
missing=
packages=
advice=

# lacks WHAT [PACKAGE]: without a package apt cannot help.
lacks() {
    missing="$missing${missing:+, }$1"
    packages="$packages${2:+ $2}"
}

python_facts() {
    "$python" - <<'END'
import os, sys, sysconfig
include = sysconfig.get_path("include", "posix_prefix")
print("%d.%d" % sys.version_info[:2], end=" ")
print("old" if sys.version_info < (3, 10) else "new", end=" ")
print("yes" if os.path.exists(os.path.join(include, "Python.h")) else "no", end=" ")
print("system" if sys.base_prefix == "/usr" else "own")
END
}

check_python() {
    if ! command -v "$python" >/dev/null 2>&1; then
        name=$(basename "$python")
        lacks "Python ($name)" "$name $name-dev $name-venv"
        return
    fi
    set -- $(python_facts)
    version=$1 age=$2 headers=$3 origin=$4
    if [ "$age" = old ]; then
        lacks "Python 3.10 or newer ($python is $version)"
        for newer in python3.14 python3.13 python3.12 python3.11 python3.10; do
            if $newer -c "" >/dev/null 2>&1; then
                advice="run: make demo PYTHON=$newer"
                break
            fi
        done
        return
    fi
    # Debian's packages for its own Python are named python3-…; packages for other Pythons have a
    # version in the name.
    name=python3
    [ "$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" \
        = "$version" ] || name=python$version
    if [ "$headers" = no ]; then
        if [ "$origin" = system ]; then
            lacks "the headers of Python $version" "$name-dev"
        else
            lacks "Python.h of $(command -v "$python")"
            advice="install that Python with its headers, or choose another with PYTHON="
        fi
    fi
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        if [ "$origin" = system ]; then
            lacks "the venv module of Python $version" "$name-venv"
        else
            lacks "the modules venv and ensurepip of $(command -v "$python")"
            advice="install that Python whole, or choose another with PYTHON="
        fi
    fi
}

check_compiler() {
    scratch=$(mktemp -d)
    printf '#include <vector>\nint main() { return std::vector<int>(1)[0]; }\n' >"$scratch/a.cpp"
    ${CXX:-c++} -std=c++17 "$scratch/a.cpp" -o "$scratch/a" >/dev/null 2>&1 ||
        lacks "a C++17 compiler (${CXX:-c++})" g++
    rm -rf "$scratch"
}

# The package index that pip will use. Only an answer matters, so the index's certificate is not
# checked.
index_fault() {
    index=${PIP_INDEX_URL:-$("$python" -m pip config get global.index-url 2>/dev/null)}
    "$python" - "${index:-https://pypi.org/simple}" <<'END'
import ssl, sys, urllib.error, urllib.parse, urllib.request
address = sys.argv[1].rstrip("/")
try:
    urllib.request.urlopen(
        address + "/numpy/", timeout=10, context=ssl._create_unverified_context()
    ).close()
except urllib.error.HTTPError as error:
    fault = str(error) if error.code >= 500 or error.code == 407 else ""
except (OSError, ValueError) as error:
    fault = str(getattr(error, "reason", error))
else:
    fault = ""
if fault:
    print("%s does not answer (%s)" % (urllib.parse.urlsplit(address).hostname, fault))
END
}

check_network() {
    if command -v "$python" >/dev/null 2>&1; then
        index_fault
    elif ! getent hosts pypi.org >/dev/null 2>&1; then
        echo "the name pypi.org is not resolved"
    fi
}

check_python
check_compiler
if [ $packages_only = yes ]; then
    echo $packages
    [ -z "$missing" ]
    exit
fi

unreachable=
if [ $network = yes ] && [ -z "${PIP_NO_INDEX:-}" ]; then
    unreachable=$(check_network)
fi
[ -n "$missing$unreachable" ] || exit 0

line=
if [ -n "$missing" ]; then
    line="uhal needs $missing"
    if [ -n "$packages" ]; then
        sudo=
        [ "$(id -u)" = 0 ] || sudo="sudo "
        update=
        ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 || update="${sudo}apt-get update && "
        if command -v apt-get >/dev/null 2>&1; then
            line="$line. Run: $update${sudo}apt-get install -y$packages"
        else
            line="$line (on Debian and Ubuntu the packages$packages)"
        fi
    fi
    [ -z "$advice" ] || line="$line. Then $advice"
    [ -n "$packages" ] || line=$(printf %s "$line" | sed 's/\. Then /: /')
fi
if [ -n "$unreachable" ]; then
    network_line="$unreachable, so build requirements cannot be downloaded: connect the network or set HTTPS_PROXY or PIP_INDEX_URL"
    if [ -n "$line" ]; then
        line="$line. Also: $network_line"
    else
        line="Compiler, headers and venv are here, but $network_line"
    fi
fi
echo "$line" >&2
exit 1
