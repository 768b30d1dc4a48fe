# Images of berth:
#
#   docker build --target berth --tag berth:dev .              API, workers, media units, node agents, terminal
#   docker build --target apertium --tag berth-apertium:dev .  a translation node with Debian's Apertium
#   docker build --target sim --tag berth-sim:dev .            the model simulator, with berth for its health check
#   docker build --target bench --tag berth-bench:dev .        benchmarks, on the Redis and Temporal of the settings
#
# They contain static binaries and run without privileges. The version is part of the binary: --build-arg VERSION=1.2.3

ARG GO_VERSION=1.26.8
ARG NODE_VERSION=22.23.2
ARG DEBIAN_VERSION=bookworm-20260803-slim

# The page is embedded in berth.
FROM node:${NODE_VERSION}-bookworm-slim AS page
WORKDIR /src
COPY api/console/package.json api/console/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY api/console/ ./
RUN npm run build

FROM golang:${GO_VERSION}-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
COPY --from=page /src/dist/ api/console/dist/
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/ ./cmd/... \
    && cd dev && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/berth-sim ./sim

FROM debian:${DEBIAN_VERSION} AS system
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates tzdata \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home berth
WORKDIR /home/berth
ENTRYPOINT ["berth"]

# The binaries come last, so that a new version changes one small layer.
FROM system AS apertium
RUN apt-get update \
    && apt-get install --yes --no-install-recommends apertium apertium-eng-spa \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/berth /usr/local/bin/berth
USER 10001

FROM system AS bench
COPY --from=build /out/berth /out/berth-bench /out/berth-sim /usr/local/bin/
USER 10001
ENTRYPOINT ["berth-bench"]

# The API reads PDF files and the model simulator images with these tools.
FROM system AS tools
RUN apt-get update \
    && apt-get install --yes --no-install-recommends poppler-utils poppler-data tesseract-ocr tesseract-ocr-eng tesseract-ocr-chi-sim \
    && rm -rf /var/lib/apt/lists/*

FROM tools AS sim
COPY --from=build /out/berth /out/berth-sim /usr/local/bin/
USER 10001
ENTRYPOINT ["berth-sim"]

FROM tools AS berth
COPY --from=build /out/berth /usr/local/bin/berth
USER 10001
