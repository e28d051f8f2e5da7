# One image for the node driver (egpu-node), the controller (egpu-controller), the webhook
# (egpu-webhook) and the agent of remote cards (egpu-pool).
#
# It installs from dist/wheels alone, so that the build needs no network and holds exactly what was put there:
#   python3 -m pip download --require-hashes --only-binary :all: --dest dist/wheels -r requirements.lock
#   python3 -m pip wheel --no-deps --wheel-dir dist/wheels .
#   docker build --tag <your registry>/elastic-gpu:0.1.0 .
#
# BASE is any Linux with glibc, CA certificates and, as `python3`, the Python version that the wheels were made with.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS install
COPY dist/wheels /wheels
# pip runs from its own wheel: the base need not have it, and it stays behind in this stage.
RUN python3 -m venv --without-pip /opt/elastic-gpu \
 && PYTHONPATH="$(ls /wheels/pip-*.whl)" /opt/elastic-gpu/bin/python3 -m pip install \
      --no-index --find-links /wheels --no-compile --no-cache-dir --disable-pip-version-check elastic-gpu
# Compiled here, since the running container's file system is read-only; the sources never change, so they are not looked at again.
RUN python3 -m compileall -q -j 1 --invalidation-mode unchecked-hash /opt/elastic-gpu/lib

FROM ${BASE}
LABEL org.opencontainers.image.title="elastic-gpu" \
      org.opencontainers.image.description="Node driver, controller, webhook and pool agent of Elastic GPU, a Kubernetes DRA driver" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=install /opt/elastic-gpu /opt/elastic-gpu
# The C library gives memory back that lists of a large cluster took for a moment.
ENV PATH=/opt/elastic-gpu/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 \
    MALLOC_TRIM_THRESHOLD_=131072
# Root, since the node driver writes to directories of the kubelet; the chart runs controller and webhook as 65532.
USER 0:0
ENTRYPOINT ["egpu-node"]
