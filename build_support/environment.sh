#!/bin/sh
# Makes or updates .venv: environment, build requirements, compiled parts, uhal.
#
#   environment.sh PYTHON ORIGIN [EXTRA…]
#
# ORIGIN is make's word for the source of PYTHON. A Python that the user named replaces a .venv of
# another version; make's default does not. Each EXTRA is an extra of pyproject.toml.
# A second run does only the remaining work.
set -eu

cd "$(dirname "$0")/.."
python=$1
origin=$2
shift 2
extras=$(echo "$*" | tr ' ' ',')
case "$extras" in *test*) extras="$extras,sim,kernels,weights,llm,opencl,webgpu,mpi" ;; esac # the tests execute PTX, compile for AMD, read models, run OpenCL, WebGPU and MPI
venv_python=.venv/bin/python
stamp=.venv/uhal-installed${extras:+-$extras}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo none
}

wanted=$(cksum pyproject.toml setup.py uhal/_version.py)
replace=no
present=$(version_of $venv_python)
if [ "$present" = none ]; then
    replace=yes
elif [ "$origin" != file ] && [ "$(version_of "$python")" != "$present" ]; then
    replace=yes
fi

if [ $replace = no ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    sh build_support/prerequisites.sh --offline $venv_python
    $venv_python setup.py -q build_ext --inplace
    exit
fi
if [ $replace = yes ]; then
    sh build_support/prerequisites.sh "$python"
    echo "environment: .venv with Python $(version_of "$python")"
    "$python" -m venv --clear .venv
else
    sh build_support/prerequisites.sh $venv_python
fi

requirements=$($venv_python build_support/requirements.py)
pip="$venv_python -m pip --disable-pip-version-check --no-input"
echo "environment: installing $(echo "$requirements" | tr '\n' ' ')"
# shellcheck disable=SC2086 # each requirement is a word
$pip install -q $requirements
$venv_python setup.py -q build_ext --inplace
echo "environment: installing uhal${extras:+ with $extras}, editable"
$pip install -q --no-build-isolation -e ".${extras:+[$extras]}"
echo "$wanted" >"$stamp"
