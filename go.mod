module github.com/sidecar-mesh/sidecar

go 1.26
