# The HTTP service (docs/containers.md). `docker-compose.yml` runs it; what an image cannot say is there: read-only root,
# no capabilities, limits. Debian's own Python, so that every step can be tried in a plain Debian.
FROM debian:trixie-slim AS build
# hadolint ignore=DL3008  # Debian keeps only the newest version of a package, with its security fixes
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/kernelbox
COPY requirements-dev.lock pyproject.toml hatch_build.py README.md LICENSE /source/
COPY src /source/src
# More packages for the code in kernels: docker build --build-arg PACKAGES="numpy pandas matplotlib"
ARG PACKAGES=""
# The versions are those of the lock, which the tests have run with; PACKAGES is a list of words.
# hadolint ignore=SC2086
RUN sed -n 's/^\([a-z0-9][^ ]*==[^\\]*\).*/\1/p' /source/requirements-dev.lock > /source/versions.txt \
    && /opt/kernelbox/bin/pip install --no-cache-dir --constraint /source/versions.txt "/source[all]" ${PACKAGES}

FROM debian:trixie-slim
# hadolint ignore=DL3008  # as above
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-log-init --create-home --shell /usr/sbin/nologin kernelbox \
    && install --directory --owner=kernelbox --group=kernelbox /workspace
COPY --from=build /opt/kernelbox /opt/kernelbox
ENV PATH=/opt/kernelbox/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    HOME=/home/kernelbox \
    KERNELBOX_HOME=/home/kernelbox/kernels
USER 10001:10001
WORKDIR /workspace
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
# The first process must bury what kernels leave behind; that is what tini does.
ENTRYPOINT ["tini", "--"]
CMD ["kernelbox", "serve", "--host", "0.0.0.0", "--port", "8080", "--workspace", "/workspace", "--require-token"]
