# The HTTP service (docs/containers.md). `docker-compose.yml` runs it; what an image cannot say is there: read-only root,
# no capabilities, limits. Debian's own Python, so that every step can be tried in a plain Debian.
#
#   docker build -t kernelbox .                                    the service
#   docker build --target data -t kernelbox .                      with numpy, pandas, matplotlib and plotly
#   --build-arg PACKAGES="polars duckdb"                           more packages for the code in kernels
#   --build-arg CERTIFICATE="$(cat authority.crt)"                 the authority of a private network
#   --build-arg PIP_INDEX_URL=https://index.example.org/simple     another package index
FROM debian:trixie-slim AS base
# hadolint ignore=DL3008  # Debian keeps only the newest version of a package, with its security fixes
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/*
ARG CERTIFICATE=""
# Each certificate in a file of its own: others are not found by their hash.
RUN awk 'BEGIN { count = split(ENVIRON["CERTIFICATE"], lines, "\n"); for (i = 1; i <= count; i++) { \
        n += lines[i] ~ /BEGIN/; if (n) print lines[i] > ("/usr/local/share/ca-certificates/private-" n ".crt") } }' \
    && update-ca-certificates

# What changes seldom comes first, so that a change of the source leaves it in the cache.
FROM base AS dependencies
# hadolint ignore=DL3008  # as above
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt
ARG PIP_INDEX_URL
RUN python3 -m venv /opt/kernelbox
COPY requirements-dev.lock pyproject.toml /source/
# The versions are those of the lock, which the tests have run with.
RUN sed -n 's/^\([a-z0-9][^ ]*==[^\\]*\).*/\1/p' /source/requirements-dev.lock > /source/versions.txt \
    && python3 -c 'import tomllib; project = tomllib.load(open("/source/pyproject.toml", "rb"))["project"]; \
extras = project["optional-dependencies"]; \
print(*project["dependencies"], *extras["mcp"], *extras["jupyter"], *extras["otel"], sep="\n")' > /source/needed.txt \
    && /opt/kernelbox/bin/pip install --no-cache-dir --constraint /source/versions.txt --requirement /source/needed.txt

FROM dependencies AS wheel
COPY hatch_build.py README.md LICENSE /source/
COPY src /source/src
RUN /opt/kernelbox/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheel /source

FROM dependencies AS build
ARG PACKAGES=""
# PACKAGES is a list of words.
# hadolint ignore=SC2086
RUN [ -z "$PACKAGES" ] || /opt/kernelbox/bin/pip install --no-cache-dir --constraint /source/versions.txt ${PACKAGES}
COPY --from=wheel /wheel /wheel
RUN /opt/kernelbox/bin/pip install --no-cache-dir --no-deps /wheel/*.whl

FROM dependencies AS build-data
ARG PACKAGES=""
# hadolint ignore=SC2086
RUN /opt/kernelbox/bin/pip install --no-cache-dir --constraint /source/versions.txt \
    numpy pandas matplotlib plotly ${PACKAGES}
COPY --from=wheel /wheel /wheel
RUN /opt/kernelbox/bin/pip install --no-cache-dir --no-deps /wheel/*.whl

FROM base AS run
# hadolint ignore=DL3008  # as above
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-log-init --create-home --shell /usr/sbin/nologin kernelbox \
    && install --directory --owner=kernelbox --group=kernelbox /workspace
# The root is read-only, so cells install packages in the workspace.
ENV PATH=/opt/kernelbox/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    HOME=/home/kernelbox \
    KERNELBOX_HOME=/home/kernelbox/kernels \
    KERNEL_ENV_PIP_TARGET=/workspace/.packages \
    KERNEL_ENV_PYTHONPATH=/workspace/.packages \
    KERNEL_ENV_PIP_CERT=/etc/ssl/certs/ca-certificates.crt
USER 10001:10001
WORKDIR /workspace
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
# The first process must bury what kernels leave behind; that is what tini does.
ENTRYPOINT ["tini", "--"]
CMD ["kernelbox", "serve", "--host", "0.0.0.0", "--port", "8080", "--workspace", "/workspace", "--require-token"]

FROM run AS data
COPY --from=build-data /opt/kernelbox /opt/kernelbox

FROM run AS kernelbox
COPY --from=build /opt/kernelbox /opt/kernelbox
