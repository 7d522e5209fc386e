# Two images of one build, for Docker with and without BuildKit:
#   docker build -t tier-agent:dev --build-arg VERSION=1.2.3 .
#   docker build -t tier-agent-engine:dev --target engine .
FROM golang:1.26 AS build
WORKDIR /src
# On their own, so that an edit of the code does not fetch the modules again.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
# Without cgo the binaries need no libc, and "scratch" has none.
ENV CGO_ENABLED=0
RUN go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/tier-agent ./cmd/tier-agent \
 && go build -trimpath -ldflags "-s -w" -o /out/engine ./test/engine/cmd/engine
# "scratch" has no mkdir. HAProxy wants a state file from its first start on; "1" is its
# version line, and no server has a row yet.
RUN mkdir -p /out/run /out/state && echo 1 > /out/state/server-state

# The engine of the demo and the tests.
FROM scratch AS engine
COPY --from=build /out/engine /engine
USER 65532:65532
ENTRYPOINT ["/engine"]

# Last, so that it is what a build without --target makes.
FROM scratch AS tier-agent
# For engines behind https.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/tier-agent /tier-agent
# The user of the image owns where it makes its socket and what it has to keep. A new
# volume mounted on the latter starts with this content and owner.
COPY --from=build --chown=65532:65532 /out/run /run/tier-agent
COPY --from=build --chown=65532:65532 /out/state /var/lib/tier-agent
USER 65532:65532
ENTRYPOINT ["/tier-agent"]
CMD ["serve"]
