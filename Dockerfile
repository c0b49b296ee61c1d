# The proxy as an image with nothing else in it. Build with `make docker`.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /sidecar ./cmd/sidecar

FROM scratch
COPY --from=build /sidecar /sidecar
# Any user will do: the proxy writes nothing but an access log, where it is told to.
USER 65532:65532
# outbound, inbound, admin, health, metrics
EXPOSE 15001 15006 15000 15021 15090
ENTRYPOINT ["/sidecar"]
CMD ["run", "-c", "/etc/sidecar"]
